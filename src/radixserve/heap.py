"""Memory that was freed and is still the process's: glibc keeps it for later, a tenth of all after a model is loaded."""

import ctypes


def trim() -> bool:
    """Gives freed memory back to the system, in some tens of ms; says whether there was any. Without glibc nothing happens."""
    try:
        malloc_trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return False
    return bool(malloc_trim(0))
