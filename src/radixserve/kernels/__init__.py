"""Native CPU kernels, where the extension was built. `docs/design/cpu-kernels.md` describes them."""

try:
    from radixserve.kernels import _native
except ImportError:
    NOT_BUILT: str | None = (
        "the native extension was not built: there was no C++ compiler when RadixServe was installed; install one, then RadixServe"
    )
else:
    NOT_BUILT = None


def level() -> str:
    """The instruction sets that the kernels use: avx512_bf16, avx512, avx2 or portable. Only where they were built."""
    return _native.level()


def set_num_threads(n: int) -> None:
    """Threads of every kernel, if there are any. No result depends on it."""
    if NOT_BUILT is None:
        _native.set_num_threads(n)
