"""Without the extension everything else is there: torch computes, and says why."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
sys.modules["radixserve.kernels._native"] = None  # as if it had not been built
from radixserve.config import EngineConfig
from radixserve.engine.build import build_engine
from radixserve.errors import ModelError
try:
    build_engine(EngineConfig(model=sys.argv[1], quantization="int8", dtype="bfloat16", device="cpu", num_slots=64))
except ModelError as error:
    assert "--quantization int8 needs the native kernels: the native extension was not built" in str(error), error
else:
    raise AssertionError("int8 was ignored")
print(build_engine(EngineConfig(model=sys.argv[1], dtype="bfloat16", device="cpu", num_slots=64)).info.kernels)
"""


def test_torch_computes_where_the_extension_is_missing(tiny_model_dir: Path) -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM, tiny_model_dir], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("torch, because the native extension was not built")
