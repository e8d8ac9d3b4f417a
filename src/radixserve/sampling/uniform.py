"""Random numbers that depend on a request's seed and the position of a token, and on nothing else.

There is no generator with a state: batch mates, chunks and preemptions can't shift what a request draws.
"""

from collections.abc import Sequence

import numpy as np

_MASK = (1 << 64) - 1
_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def uniform(seeds: Sequence[int], positions: Sequence[int]) -> np.ndarray:
    """A number in [0, 1) for each pair, a multiple of 2**-53; float64 [n].

    It is the output number `position` of SplitMix64 started at the mixed seed.
    SplitMix64 is of Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014), with Stafford's mix 13. The
    seed is mixed first because neighbouring seeds are common: the choices of one request count up from its seed.
    """
    started = _mix(np.array([seed & _MASK for seed in seeds], dtype=np.uint64))
    outputs = _mix(started + (np.array(positions, dtype=np.uint64) + np.uint64(1)) * _GAMMA)
    numbers: np.ndarray = (outputs >> np.uint64(11)) * 2.0**-53
    return numbers


def _mix(values: np.ndarray) -> np.ndarray:
    """uint64, modulo 2**64."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = values ^ (values >> np.uint64(31))
    return mixed
