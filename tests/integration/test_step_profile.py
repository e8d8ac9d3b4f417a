"""The command that says where the time of a step goes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from radixserve import kernels

if kernels.NOT_BUILT is not None:
    pytest.skip(kernels.NOT_BUILT, allow_module_level=True)

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "step_profile.py"


def test_every_part_of_a_step_is_found(tiny_model_dir: Path) -> None:
    command = [sys.executable, str(PROGRAM), "--model", str(tiny_model_dir), "--rows", "2", "--steps", "3", "--context", "20"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["decode 2"]
    parts = {
        "scheduling",
        "plan of attention, positions",
        "attention",
        "output and MLP",
        "norm and head",
        "sampling",
        "text and messages",
    }
    assert parts < found.keys()
    assert all(0 < time_ms <= found["step"] for time_ms in found.values())
