"""A program that ends with its `LLM` still there ends at once and in silence, and leaves no process behind."""

import os
import subprocess
import sys
from pathlib import Path

import psutil

import radixserve

PROGRAM = """
import sys
import psutil
from radixserve import LLM, Grammar, SamplingParams

llm = LLM(sys.argv[1], dtype="float32", device="cpu", num_threads=1, num_slots=64, tensor_parallel=2)
params = SamplingParams(max_tokens=3, grammar=Grammar("regex", "yes|no"))
assert llm.generate("Well?", params, progress=False).text in ("yes", "no")
print(*[child.pid for child in psutil.Process().children()])
"""


def test_a_program_ends_with_its_ranks_and_the_trial_of_its_grammars(tiny_model_dir: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(radixserve.__file__).parents[1])}
    command = [sys.executable, "-c", PROGRAM, str(tiny_model_dir)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert (ended.returncode, ended.stderr) == (0, "")
    children = [int(pid) for pid in ended.stdout.split()]
    assert len(children) == 2
    assert not any(map(psutil.pid_exists, children))
