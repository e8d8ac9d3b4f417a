"""Types of values that users pass, and msgspec's word for what is wrong with one."""

import re
from typing import Any

import msgspec


def read_fault(message: str) -> tuple[str, str]:
    """Takes msgspec's "Expected `int`, got `str` - at `$.n`" apart: ("expected int, got str", ".n"). The path may be empty."""
    reason, _, place = message.partition(" - at ")  # `$.field`, or `key` in `$.field`
    reason = reason.replace("`", "")
    return reason[:1].lower() + reason[1:], place.rpartition("$")[2].removesuffix("`")


def type_fault(values: dict[str, Any], kind: type[Any]) -> tuple[str, str] | None:
    """The first of `values` that is not of its field's type in `kind` (a dataclass or a Struct), and what is wrong with it.

    For Python callers' settings and parameters, which no decoder has seen.
    """
    try:
        msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        reason, path = read_fault(str(error))
        name = re.match(r"\.(\w+)", path)
        return name[1] if name else "", reason
    return None
