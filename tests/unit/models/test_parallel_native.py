"""The native feed forward in halves, as a rank needs it, against the fused one: the same bits, where one rank has all."""

from pathlib import Path

import pytest
import torch

from radixserve import kernels
from radixserve.models.loader import load_model
from radixserve.models.native_operations import NativeOperations
from tests.sequences import Sequences
from tests.tiny_models import make_tiny_model


@pytest.mark.skipif(kernels.NOT_BUILT is not None, reason=str(kernels.NOT_BUILT))
@pytest.mark.parametrize("int8", [False, True])
def test_halves_make_the_whole(tmp_path: Path, int8: bool) -> None:
    path = make_tiny_model(tmp_path, attention_bias=True, mlp_bias=True)
    ids = torch.arange(40) * 5
    logits = [
        Sequences(load_model(path, torch.bfloat16, torch.device("cpu"), operations), 1).extend({0: ids})
        for operations in (NativeOperations(int8), NativeOperations(int8, reduce=lambda x: x))
    ]
    assert torch.equal(*logits)
