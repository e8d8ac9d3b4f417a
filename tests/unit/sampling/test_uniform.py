"""Random numbers by seed and position."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixserve.sampling.uniform import uniform

seeds = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.tuples(seeds, st.integers(0, 2**31)), max_size=5))
def test_is_a_function_into_the_unit_interval(pairs: list[tuple[int, int]]) -> None:
    """Of each pair alone."""
    values = uniform([seed for seed, _ in pairs], [position for _, position in pairs])
    assert all(0.0 <= value < 1.0 for value in values)
    assert values.tolist() == [uniform([seed], [position])[0] for seed, position in pairs]


def test_known_values_do_not_change() -> None:
    """A seed given today gives the same answer with a later version. Seed 0 is SplitMix64's own, as published."""
    assert uniform([0, 0], range(2)) * 2**64 == pytest.approx([0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4], rel=1e-15)
    assert uniform([1, -1], [0, 7]).tolist() == [0.7497482413580301, 0.7741445495399422]


def test_even_along_positions_and_along_neighbouring_seeds() -> None:
    for numbers in (uniform([7] * 20_000, range(20_000)), uniform(range(20_000), [3] * 20_000)):
        counts = np.histogram(numbers, bins=100, range=(0, 1))[0]
        assert ((counts - 200) ** 2 / 200).sum() < 99 + 5 * np.sqrt(2 * 99)


def test_neighbours_are_not_correlated() -> None:
    table = np.stack([uniform([seed] * 100, range(100)) for seed in range(100)])
    for left, right in ((table[:-1], table[1:]), (table[:, :-1], table[:, 1:]), (table[1:, :-1], table[:-1, 1:])):
        assert abs(np.corrcoef(left.ravel(), right.ravel())[0, 1]) < 0.04
