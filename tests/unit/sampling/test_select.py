"""Native and torch choose the same from the same logits, ties and rows without a choice included."""

import numpy as np
import pytest
import torch

from radixserve import kernels
from radixserve.sampling.select import NO_TOKEN, likeliest, top

if kernels.NOT_BUILT is not None:
    pytest.skip(kernels.NOT_BUILT, allow_module_level=True)


@pytest.fixture
def logits() -> torch.Tensor:
    """float32, which the native kernels read; as float64 torch chooses from the same values."""
    rows = (torch.randn(8, 3000, generator=torch.Generator().manual_seed(0)) * 4).round()
    rows[3, 100:] = -torch.inf
    return rows


def test_the_likeliest_is_torchs(logits: torch.Tensor) -> None:
    logits[1, 5], logits[4, 6], logits[6] = torch.nan, torch.inf, -torch.inf
    assert likeliest(logits) == likeliest(logits.double())
    assert [row for row, token_id in enumerate(likeliest(logits)) if token_id == NO_TOKEN] == [1, 4, 6]


def test_logits_that_are_not_contiguous_are_read_too(logits: torch.Tensor) -> None:
    assert likeliest(logits.T.contiguous().T) == likeliest(logits)


@pytest.mark.parametrize("size", [1, 64, 1024])
def test_the_top_is_in_order_with_ties_by_id(logits: torch.Tensor, size: int) -> None:
    native = top(logits, size)
    for row, values in enumerate(logits.numpy()):
        expected = np.lexsort((np.arange(len(values)), -values))[:size]
        assert native.ids[row].tolist() == expected.tolist()
    # torch may leave out other ones of those that equal the last: the sampler looks at those above it alone.
    by_torch = top(logits.double(), size)
    assert np.array_equal(native.values, by_torch.values)
    above = native.values > native.values[:, -1:]
    assert np.array_equal(native.ids[above], by_torch.ids[above])
