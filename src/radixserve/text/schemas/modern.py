"""A JSON Schema in the words of draft 2020-12, without annotations, and with references that lead somewhere."""

from typing import Any

from radixserve.errors import InvalidRequestError
from radixserve.text.schemas.walk import find, rewrite, shown, walk

ANNOTATIONS = frozenset({"$schema", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"})


def modern(schema: dict[str, Any], subject: str) -> dict[str, Any]:
    """The schema, which may be of an older draft. Raises InvalidRequestError (param "grammar") for a `$ref` that leads nowhere."""

    def rewritten(here: Any, pointer: str) -> Any:
        return _renamed(rewrite(here, pointer, rewritten)) if isinstance(here, dict) else here

    ends: set[int] = set()
    try:
        for pointer, here in walk(schema):
            if fault := _reference_fault(schema, here, ends):
                raise InvalidRequestError(f'"$ref" at {shown(pointer)} of {subject} {fault}', param="grammar")
        out: dict[str, Any] = rewritten(schema, "#")
    except RecursionError:
        raise InvalidRequestError(f"{subject} is nested too deeply: make it flatter", param="grammar") from None
    return out


def _renamed(here: dict[str, Any]) -> dict[str, Any]:
    """One schema; `items` was a list once, and `additionalItems` what came after."""
    out = {keyword: value for keyword, value in here.items() if keyword not in ANNOTATIONS}
    rest = out.pop("additionalItems", None)
    if isinstance(out.get("items"), list):
        out["prefixItems"] = out.pop("items")
        if rest is not None:
            out["items"] = rest
    return out


def _reference_fault(root: dict[str, Any], here: dict[str, Any], ends: set[int]) -> str:
    """What is wrong with the `$ref` of a schema, if anything is. `ends`: as `_leads_back` takes it."""
    if "$ref" not in here:
        return ""
    reference = here["$ref"]
    if not isinstance(reference, str):
        return "must be a text"
    if "://" in reference:
        return f"is {reference!r:.60}: only what is in the schema itself can be referred to"
    if reference.startswith("#/") and find(root, reference) is None:
        return f"is {reference!r:.60}, which is not there"
    if _leads_back(root, here, set(), ends):
        return f"is {reference!r:.60}, which leads back to itself: no value is ever reached"
    return ""


def _leads_back(root: dict[str, Any], here: Any, passed: set[int], ends: set[int]) -> bool:
    """Whether what must hold of one value goes round in a circle.

    `passed`: ids of the schemas on the way here; `ends`: of those that are known to lead to an end.
    """
    if not isinstance(here, dict) or id(here) in ends:
        return False
    if id(here) in passed:
        return True
    passed.add(id(here))
    reference, parts = here.get("$ref"), here.get("allOf")
    inner = [*(parts if isinstance(parts, list) else []), *([find(root, reference)] if isinstance(reference, str) else [])]
    if any(_leads_back(root, part, passed, ends) for part in inner):
        return True
    passed.remove(id(here))
    ends.add(id(here))
    return False
