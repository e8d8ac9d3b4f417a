"""The one reader of JSON that comes as text inside of something else: a schema, a call's arguments, a finished answer.

Python's own takes NaN, Infinity and numbers beyond a double, which RFC 8259 does not have.
"""

import json
import math
from typing import Any, NoReturn


def read_json(text: str | bytes, *, surrogates: bool = False) -> Any:
    """The value. Whole numbers are exact, others doubles.

    Of a key that comes twice the last value counts. `surrogates`: strings may hold one half of a
    UTF-16 pair, as escapes can write it; else that is refused: UTF-8 has no bytes for it. Raises ValueError for what is no JSON.
    """
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_float=_float)
        if not surrogates:
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnicodeEncodeError as error:
        half = ord(error.object[error.start])
        raise ValueError(f"it holds half of a character (U+{half:04X}): send whole ones") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text:.40} is larger than a double can be")
    return value
