"""Checks the types of values that Python callers pass as settings and parameters, which no decoder has seen."""

import re
from typing import Any

import msgspec


def type_fault(values: dict[str, Any], kind: type[Any]) -> tuple[str, str] | None:
    """The first of `values` that is not of its field's type in `kind` (a dataclass or a Struct), and what is wrong with it."""
    try:
        msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        fault = re.fullmatch(r"(.*?)(?: - at `\$\.?(\w*).*`)?", str(error))
        assert fault is not None
        return fault[2] or "", fault[1][:1].lower() + fault[1][1:].replace("`", "")
    return None
