"""The team of threads: callers take turns, a forked process has its own, and any number on any cores computes the same."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from radixserve import kernels

if kernels.NOT_BUILT is not None:
    pytest.skip(kernels.NOT_BUILT, allow_module_level=True)
from radixserve.kernels import _native

FORKING = """
import os, torch
from radixserve.kernels import _native

logits = torch.rand(64, 20_000, generator=torch.Generator().manual_seed(0))
_native.set_num_threads(4)
found = _native.argmax(logits)
child = os.fork()
if child == 0:
    _native.set_num_threads(5)
    os._exit(_native.argmax(logits) != found)
assert os.waitpid(child, 0)[1] == 0 and _native.argmax(logits) == found
"""


def test_callers_of_several_threads_take_turns() -> None:
    logits = [torch.rand(64, 20_000, generator=torch.Generator().manual_seed(seed)) for seed in range(8)]
    expected = [each.argmax(-1).tolist() for each in logits]
    for threads in (2, 7):
        _native.set_num_threads(threads)
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(_native.argmax, logits * 10)) == expected * 10


def test_a_team_smaller_than_the_one_before_leaves_the_others_waiting() -> None:
    logits = torch.rand(64, 20_000, generator=torch.Generator().manual_seed(0))
    expected = logits.argmax(-1).tolist()
    for threads in (5, 2, 3, 1, 5) * 10:
        _native.set_num_threads(threads)
        assert _native.argmax(logits) == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_computes_with_threads_of_its_own() -> None:
    source = str(Path(kernels.__file__).parents[2])
    subprocess.run([sys.executable, "-c", FORKING], check=True, timeout=60, env=os.environ | {"PYTHONPATH": source})
