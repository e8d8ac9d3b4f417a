"""The likeliest of a row of logits: torch's choice at every level, and ties to the lower id."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from radixserve import kernels

if kernels.NOT_BUILT is not None:
    pytest.skip(kernels.NOT_BUILT, allow_module_level=True)

from radixserve.kernels import _native
from tests.kernel_levels import available_levels

INFINITY, NAN = float("inf"), float("nan")


def coarse(rows: int, size: int, seed: int = 0) -> torch.Tensor:
    """Logits of few different values, so that most have equals; some are banned."""
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(rows, size, generator=generator) * 3).round()
    logits[torch.rand(rows, size, generator=generator) < 0.1] = -INFINITY
    return logits


def top(logits: torch.Tensor, k: int) -> tuple[np.ndarray, np.ndarray]:
    values, ids = torch.full((len(logits), k), NAN), torch.full((len(logits), k), -1)
    _native.top_k(logits, values, ids)
    return values.numpy(), ids.numpy()


def in_order(row: np.ndarray) -> np.ndarray:
    return np.lexsort((np.arange(len(row)), -row))


@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 63, 257, 49_152])
def test_the_largest_and_the_lowest_of_equal_ones(level: str, size: int) -> None:
    logits = torch.cat((coarse(9, size), torch.zeros(1, size), -torch.arange(1.0, size + 1)[None]))
    expected = [int(in_order(row)[0]) for row in logits.numpy() if np.isfinite(row.max())]
    assert [index for index in _native.argmax(logits) if index >= 0] == expected


def test_zeros_of_either_sign_are_equal(level: str) -> None:
    logits = torch.full((2, 40), -1.0)
    logits[0, [5, 21]] = torch.tensor([-0.0, 0.0])
    logits[1, [5, 21]] = torch.tensor([0.0, -0.0])
    assert _native.argmax(logits) == [5, 5]
    assert top(logits, 2)[1].tolist() == [[5, 21], [5, 21]]


@pytest.mark.parametrize("at", [0, 18, 39])
def test_rows_without_a_choice_are_told_and_stay_alone(level: str, at: int) -> None:
    logits = coarse(6, 40)
    logits[:, 7] = 50.0
    logits[1, at], logits[3, at], logits[4] = NAN, INFINITY, -INFINITY
    assert _native.argmax(logits) == [7, -1, 7, -1, -1, 7]


@pytest.mark.parametrize("level_name", available_levels())
@settings(max_examples=60)
@given(size=st.integers(1, 6000), k=st.integers(1, 1100), seed=st.integers(0, 1000))
def test_the_largest_in_order(level_name: str, size: int, k: int, seed: int) -> None:
    """Random, rising and falling rows: what is passed over differs most between them."""
    _native.choose_level(level_name)
    k = min(k, size)
    logits = torch.cat((coarse(2, size, seed), torch.arange(size, dtype=torch.float32)[None], -torch.arange(float(size))[None]))
    values, ids = top(logits, k)
    for row, logit in enumerate(logits.numpy()):
        expected = in_order(logit)[:k]
        assert ids[row].tolist() == expected.tolist()
        assert np.array_equal(values[row], logit[expected])


def test_threads_change_nothing(level: str) -> None:
    logits = coarse(9, 1 << 17)
    found = []
    for threads in (1, 2, 3):
        _native.set_num_threads(threads)
        found.append((_native.argmax(logits), top(logits, 64)[1].tolist()))
    assert found[0] == found[1] == found[2]


def test_a_row_of_nothing_but_nan_is_no_danger(level: str) -> None:
    logits = torch.full((1, 5000), NAN)
    logits[0, ::3] = 1.0
    assert len(set(top(logits, 1024)[1][0].tolist())) == 1024


@pytest.mark.parametrize("k", [0, 11])
def test_more_than_there_is_or_nothing_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match=f"values has {k} columns: must be 1 to 10"):
        top(torch.zeros(2, 10), k)


def test_no_rows_give_nothing() -> None:
    assert _native.argmax(torch.zeros(0, 10)) == []
