"""Tests of kernels run at every level that this CPU has; level and threads are put back after each."""

from collections.abc import Iterator

import pytest

from radixserve import kernels
from tests.kernel_levels import available_levels

if kernels.NOT_BUILT is None:
    from radixserve.kernels import _native


@pytest.fixture(params=available_levels())
def level(request: pytest.FixtureRequest) -> str:
    """The level that the kernels run at."""
    _native.choose_level(request.param)
    return str(request.param)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    if kernels.NOT_BUILT is not None:
        yield
        return
    level, threads = _native.level(), _native.num_threads()
    yield
    _native.choose_level(level)
    _native.set_num_threads(threads)
