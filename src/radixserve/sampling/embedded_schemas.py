"""The JSON Schemas inside of a grammar in Lark, each after the word %json: a client's own, or those of an answer's parts."""

import json
import re
from collections.abc import Iterator
from typing import Any

from radixserve.errors import InvalidRequestError
from radixserve.json_text import read_json
from radixserve.sampling.json_form import JSON_FORM
from radixserve.text.schemas.enforceable import enforceable

_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/(?:\\.|[^/\\])+/|(?P<json>%json\s*(?=\{))')
"""Texts, comments and expressions, which may hold the word without meaning it, and what means it."""


def enforced(source: str) -> str:
    """The grammar with its schemas in terms that can be enforced. Raises InvalidRequestError (param "grammar")."""
    out, at = "", 0
    for begin, end, schema in _find(source):
        rewritten = enforceable(schema, subject(schema)) | {"x-guidance": JSON_FORM}
        out += f"{source[at:begin]}%json {json.dumps(rewritten, ensure_ascii=False)}"
        at = end
    return out + source[at:]


def schemas(source: str) -> list[dict[str, Any]]:
    """The schemas."""
    return [schema for _, _, schema in _find(source)]


def subject(schema: dict[str, Any]) -> str:
    """What errors call it: as `json_text` noted."""
    return str(schema.get("$comment", "a schema of the ebnf"))


def _find(source: str) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Where each begins and ends, with its %json, and itself."""
    at = 0
    while token := _TOKEN.search(source, at):
        at = token.end()
        if token["json"]:
            try:
                _, at = json.JSONDecoder().raw_decode(source, at)
                schema = read_json(source[token.end() : at])
            except (ValueError, RecursionError) as error:
                raise InvalidRequestError(f"a schema of the ebnf is not JSON: {error}", param="grammar") from None
            yield token.start(), at, schema
