"""Which objects are closed to properties that their schema does not declare.

Small models invent properties where they may, most of all in the arguments of tools. So where `additionalProperties` is absent, an
object whose schema names properties has these alone; `true` or a schema opens it, as the standard's default would.

A schema that is one part of a whole (of `allOf`, or beside `anyOf` or `$ref`) must not be closed to the other parts' properties:
the whole is closed only where one part names them all.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from radixserve.text.schemas.walk import find, inside

IN_PLACE = frozenset({"allOf", "anyOf", "oneOf"})
"""Keywords whose schemas speak of the same value."""
_SPEAKS = IN_PLACE | {"properties", "patternProperties", "additionalProperties", "required", "$ref"}
"""Keywords that speak of properties, or may."""


MAX_PASSES = 32
"""References through which a part is followed: what is referred to from a part is one too. Beyond, nothing is closed."""


class Closable:
    """`pointers`: of the schemas to close, all of them in `root`."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._parts: set[str] = set()
        """References to schemas that are a part of a whole somewhere."""
        for _ in range(MAX_PASSES):
            num_known = len(self._parts)
            self._parts |= {str(here["$ref"]) for _, here, whole in self._walk() if "$ref" in here and not (whole and _alone(here))}
            if len(self._parts) == num_known:
                break
        else:
            self.pointers: set[str] = set()
            return
        self.pointers = {pointer for pointer, here, whole in self._walk() if whole and self._closes(here)}

    def _walk(self) -> Iterator[tuple[str, dict[str, Any], bool]]:
        """Every schema with its pointer, and whether nothing else speaks of the same value."""
        stack: list[tuple[str, Any, bool]] = [("#", self._root, True)]
        references = {unquote(reference) for reference in self._parts}
        while stack:
            pointer, here, whole = stack.pop()
            if not isinstance(here, dict):
                continue
            whole = whole and pointer not in references and f"#{here.get('$anchor')}" not in references
            yield pointer, here, whole
            for keyword, place, item in inside(here, pointer):
                stack.append((place, item, keyword not in IN_PLACE or (whole and _alone(here))))

    def _closes(self, here: dict[str, Any]) -> bool:
        """Whether a schema names properties, and all of those that its parts speak of."""
        names = here.get("properties", {})
        declares = "properties" in here or "patternProperties" in here
        if not declares or "additionalProperties" in here or not isinstance(names, dict):
            return False
        spoken_of = self._spoken_of(here, set())
        return spoken_of is not None and spoken_of <= names.keys()

    def _spoken_of(self, here: dict[str, Any], seen: set[str]) -> set[str] | None:
        """Names of properties in the parts of a schema, but for references in `seen`; None where they can't be known."""
        found: set[str] = set()
        parts = [item for keyword, _, item in inside(here, "") if keyword in IN_PLACE]
        if "$ref" in here:
            reference = str(here["$ref"])
            if (target := find(self._root, reference)) is None:
                return None
            if reference not in seen:
                parts.append(target)
            seen.add(reference)
        for part in parts:
            if not isinstance(part, dict):
                continue
            names = self._spoken_of(part, seen)
            if names is None or "patternProperties" in part or part.get("additionalProperties", False) is not False:
                return None
            found |= names | set(part.get("properties", ())) | set(map(str, part.get("required", ())))
        return found


def close(here: dict[str, Any]) -> dict[str, Any]:
    """A schema with `additionalProperties: false`; what it demands and does not name may have any value."""
    properties, required = here.get("properties", {}), here.get("required")
    unnamed = [name for name in required if name not in properties] if isinstance(required, list) else []
    return here | {"properties": properties | {str(name): {} for name in unnamed}, "additionalProperties": False}


def _alone(here: dict[str, Any]) -> bool:
    """Whether the schemas in place of this one are alternatives or one schema, with nothing beside them."""
    return len(_SPEAKS & here.keys()) <= 1 and len(here.get("allOf", ())) <= 1
