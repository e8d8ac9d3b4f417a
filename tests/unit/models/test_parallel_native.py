"""The native feed forward in halves, as a rank needs it, against the fused one: the same bits, where one rank has all."""

from pathlib import Path

import pytest
import torch

from radixserve import kernels
from radixserve.models.loader import load_model
from radixserve.models.native_operations import NativeOperations
from tests.sequences import Sequences
from tests.tiny_adapters import make_tiny_adapter
from tests.tiny_models import make_tiny_model


@pytest.mark.skipif(kernels.NOT_BUILT is not None, reason=str(kernels.NOT_BUILT))
@pytest.mark.parametrize("int8", [False, True])
def test_halves_make_the_whole(tmp_path: Path, int8: bool) -> None:
    path = make_tiny_model(tmp_path / "model", attention_bias=True, mlp_bias=True)
    adapter = str(make_tiny_adapter(tmp_path / "adapter", path))
    logits = []
    for operations in (NativeOperations(int8), NativeOperations(int8, reduce=lambda x: x)):
        decoder = load_model(path, torch.bfloat16, torch.device("cpu"), operations)
        decoder.adapters.put(1, decoder.adapters.read(adapter)[0])
        runs = {0: torch.arange(40) * 5, 1: torch.arange(30)}
        logits.append(Sequences(decoder, 2).extend(runs, loads={1: 1}))
    assert torch.equal(*logits)
