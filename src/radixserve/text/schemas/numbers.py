"""The numbers of a schema. The grammar library keeps them as doubles, and writes ranges of them digit by digit.

What it can't hold exactly is refused, but for bounds that every 64-bit integer satisfies, which say nothing that matters: they are
moved to the last that it can hold.
"""

import math
from typing import Any

EXACT = 2**53
"""Up to here every whole number is a double; the largest bound of a number that need not be whole."""
LAST_INT64 = 2**63 - 1024
"""The largest double below 2**63: the largest bound of whole numbers, and the largest value."""
LEAST = 1e-9
MOST_WITH_DECIMALS = 1e15
"""Numbers with decimals are between these two, or their negatives."""
MAX_DIVISOR_DIGITS = 8
SIDES = {"minimum": -1, "exclusiveMinimum": -1, "maximum": 1, "exclusiveMaximum": 1}
"""The bounds, and the side to which they are open."""


def is_number(value: Any) -> bool:
    """Whether a JSON value is a number: to Python a boolean is one too."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def bound(keyword: str, value: Any, *, whole: bool) -> int | float:
    """A bound as the library can hold it. `whole`: it is one of whole numbers. Raises ValueError with the reason."""
    if not is_number(value):
        raise ValueError(f"is {value!r:.40}: it must be a number")
    last = LAST_INT64 if whole else EXACT
    if value * SIDES[keyword] >= 2**63 - 1:
        return SIDES[keyword] * last
    return _held(value, last)


def divisor(value: Any) -> int | float:
    """The value of `multipleOf`. Raises ValueError with the reason."""
    if not is_number(value) or value <= 0:
        raise ValueError(f"is {value!r:.40}: it must be a number above 0")
    held = _held(value, EXACT)
    if len(f"{held:.12f}".rstrip("0").replace(".", "").lstrip("0")) > MAX_DIVISOR_DIGITS:
        raise ValueError(f"is {value}, which has too many digits: {MAX_DIVISOR_DIGITS} are the most")
    return held


def literal(value: Any) -> Any:
    """A value of `const` or `enum`, its numbers as the library writes them. Raises ValueError with the reason."""
    if isinstance(value, dict):
        return {name: literal(item) for name, item in value.items()}
    if isinstance(value, list):
        return [literal(item) for item in value]
    return _held(value, LAST_INT64) if is_number(value) else value


def _held(value: int | float, last: int) -> int | float:
    """The same number; a whole one as an int."""
    whole = value if isinstance(value, int) else int(value) if math.isfinite(value) and value == int(value) else None
    if whole is not None and abs(whole) <= last and int(float(whole)) == whole:
        return whole
    if whole is None and LEAST <= abs(value) < MOST_WITH_DECIMALS:
        return value
    raise ValueError(f"holds the number {value!r:.60}, which can't be kept exactly: leave it out, or use a text")
