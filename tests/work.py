"""Counts work, so that a test needs no clock."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines_run(call: Callable[..., object], *args: object) -> int:
    """How many lines of Python `call(*args)` runs, those of what it calls included, but no callbacks of the garbage collector."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()
    sys.settrace(trace)
    try:
        call(*args)
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return count
