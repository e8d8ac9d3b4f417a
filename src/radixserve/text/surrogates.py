"""Halves of UTF-16 pairs. JSON and Python can escape one alone, and models and clients do; UTF-8 has no bytes for it."""

import re
from typing import Any

_LONE = re.compile("[\ud800-\udfff]")


def join_surrogates(text: str) -> str:
    """The same text as UTF-8 can have it: two halves in a row become their character, a lone one the replacement mark (U+FFFD)."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if _LONE.search(text) else text


def join_all_surrogates(value: Any) -> Any:
    """The same of all strings of a JSON value, keys included."""
    if isinstance(value, str):
        return join_surrogates(value)
    if isinstance(value, dict):
        return {join_surrogates(key): join_all_surrogates(item) for key, item in value.items()}
    if isinstance(value, list):
        return [join_all_surrogates(item) for item in value]
    return value


def escape_surrogates(json_text: str) -> str:
    """A JSON text with its halves written as escapes, which is how they came."""
    return _LONE.sub(lambda match: f"\\u{ord(match[0]):04x}", json_text)
