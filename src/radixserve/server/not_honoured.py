"""Fields of requests that would change the answer and that this server can't honour: refused by name instead of being ignored."""

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

    def refuse(self) -> None:
        """Raises InvalidRequestError naming the first of them that was sent."""
        for name in NotHonoured.__struct_fields__:
            value = getattr(self, name)
            if value and value not in HARMLESS.get(name, ()):
                raise InvalidRequestError(f"{name} is not supported by this server: leave it out", param=name, code="unsupported")


HARMLESS: dict[str, tuple[Any, ...]] = {
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
}
"""Values that ask for what happens anyway."""
