"""Memory that was freed and is still the process's: glibc keeps it for later, a tenth of all after a model is loaded."""

import ctypes
import gc


def trim() -> bool:
    """Gives freed memory back to the system, in some tens of ms; says whether there was any. Without glibc nothing happens."""
    try:
        malloc_trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return False
    return bool(malloc_trim(0))


def keep_collections_short() -> None:
    """For a process that only steps from now on: what lives now, and whatever grows old, is not searched for garbage any more.

    A search of everything takes time in proportion to the tree, 0.6 s at 600,000 nodes, and Python would make it in the middle of a
    step. It would find nothing: nodes that leave the tree are taken out of their cycles and so freed at once, and a step leaves no
    cycles. Young objects are searched as ever.
    """
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, 2**31 - 1)
