"""Fields of requests that would change the answer and that this server can't honour: refused by name instead of being ignored."""

from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from radixserve.errors import InvalidRequestError


class NotHonoured(msgspec.Struct, kw_only=True):
    """Fields that this server can't honour: an answer without them would be another answer than the client asked for."""

    guided_whitespace_pattern: Any = None
    use_beam_search: Any = None
    suffix: Any = None
    functions: Any = None
    function_call: Any = None
    audio: Any = None
    modalities: Any = None
    web_search_options: Any = None
    grammar: Any = None
    structural_tag: Any = None
    output_format: Any = None
    output_config: Any = None
    text: Any = None

    def refuse(self) -> None:
        """Raises InvalidRequestError naming the first of them that was sent."""
        for name in NotHonoured.__struct_fields__:
            value = getattr(self, name)
            if value and value not in HARMLESS.get(name, ()):
                message = f"{name} is not supported by this server: {INSTEAD.get(name, 'leave it out')}"
                raise InvalidRequestError(message, param=name, code="unsupported")


class OtherConstraints(msgspec.Struct, kw_only=True):
    """A part of the bodies whose answers are constrained under other names, or not at all: the names that constrain them elsewhere.

    Ignored, such a field would leave the answer free where the client believes it held to a language.
    """

    response_format: Any = None
    structured_outputs: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    json_schema: Any = None
    regex: Any = None
    ebnf: Any = None
    grammar: Any = None
    structural_tag: Any = None
    output_format: Any = None

    def refuse_constraints(self, remedy: str, honoured: Collection[str] = ()) -> None:
        """Raises InvalidRequestError naming the first of them that was sent and is not `honoured`. `remedy`: what to do instead."""
        for name in OtherConstraints.__struct_fields__:
            if name not in honoured and getattr(self, name) is not None:
                raise InvalidRequestError(f"{name} is not supported here: {remedy}", param=name, code="unsupported")


def refuse_fields(body: msgspec.Struct, names: Iterable[str]) -> None:
    """Raises InvalidRequestError naming the first of these fields that was sent."""
    for name in names:
        if getattr(body, name):
            raise InvalidRequestError(f"{name} is not supported by this server: leave it out", param=name, code="unsupported")


INSTEAD = {
    "functions": "send tools",
    "function_call": "send tool_choice",
    "grammar": "send ebnf",
    "structural_tag": "send response_format with the type 'structural_tag'",
    "output_format": "send response_format",
    "output_config": "send response_format",
    "text": "send response_format",
}
"""What a client can do other than leave a field out."""

HARMLESS: dict[str, tuple[Any, ...]] = {
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
}
"""Values that ask for what happens anyway."""
