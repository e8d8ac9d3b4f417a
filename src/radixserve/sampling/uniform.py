"""Random numbers that depend on a request's seed and the position of a token, and on nothing else.

There is no generator with a state: batch mates, chunks and preemptions can't shift what a request draws.
"""

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1), a multiple of 2**-53: the output number `position` of SplitMix64 started at the mixed seed.

    SplitMix64 is of Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014), with Stafford's mix 13. The
    seed is mixed first because neighbouring seeds are common: the choices of one request count up from its seed.
    """
    return (_mix(_mix(seed) + (position + 1) * _GAMMA) >> 11) * 2.0**-53


def _mix(value: int) -> int:
    value &= _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
