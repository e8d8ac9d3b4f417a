"""The levels of the native kernels that this CPU has."""

from radixserve import kernels

LEVELS = ("portable", "avx2", "avx512", "avx512_bf16")


def available_levels() -> list[str]:
    """Lowest first; none where the kernels were not built."""
    if kernels.NOT_BUILT is not None:
        return []
    from radixserve.kernels import _native

    best = _native.level()
    return list(LEVELS[: LEVELS.index(best) + 1])
