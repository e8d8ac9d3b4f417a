"""`propertyNames` that list the names, said by `properties`: what pydantic and zod write for a mapping whose keys are an enum."""

from typing import Any

from radixserve.text.schemas.walk import find, rewrite


def with_named_properties(root: dict[str, Any]) -> dict[str, Any]:
    """The schema with `properties` for every `propertyNames` that lists texts. It allows the same."""

    def rewritten(here: Any, pointer: str) -> Any:
        return _named(root, rewrite(here, pointer, rewritten)) if isinstance(here, dict) else here

    out: dict[str, Any] = rewritten(root, "#")
    return out


def _named(root: dict[str, Any], here: dict[str, Any]) -> dict[str, Any]:
    names = _listed(root, here.get("propertyNames"))
    known = here.get("properties", {})
    if names is None or not isinstance(known, dict) or here.get("patternProperties"):
        return here
    others = here.get("additionalProperties", {})
    out = {keyword: value for keyword, value in here.items() if keyword != "propertyNames"}
    return out | {"properties": {name: known.get(name, others) for name in names}, "additionalProperties": False}


def _listed(root: dict[str, Any], names: Any) -> list[str] | None:
    """The texts that a schema of names allows, where it lists them."""
    if isinstance(names, dict) and isinstance(names.get("$ref"), str) and len(names) == 1:
        names = find(root, names["$ref"])
    if not isinstance(names, dict) or names.keys() - {"type", "enum", "const"}:
        return None
    values = names.get("enum", [names["const"]] if "const" in names else None)
    if not isinstance(values, list) or names.get("type", "string") != "string" or ("enum" in names and "const" in names):
        return None
    return [value for value in values if isinstance(value, str)]
