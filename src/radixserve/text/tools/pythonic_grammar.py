"""The grammar of calls written in Python: what the schema of a tool's arguments becomes when they are keyword arguments.

Values are written as JSON, which the parser of this form reads as well. Only what a list of keywords can say is enforced:
properties, and which of them are required; keywords come in the order of the schema, the required ones first.
"""

from collections.abc import Sequence
from typing import Any

from radixserve.errors import InvalidRequestError
from radixserve.text.schemas.declared import close
from radixserve.text.tools.lark import json_text, literal, parameters_of
from radixserve.text.tools.tool import Tool

_ENFORCED = {"type", "properties", "required", "additionalProperties"}
_DEFINITIONS = ("$defs", "definitions")
_NOTES = {"$schema", "$id", "$comment", "title", "description", "default", "examples", *_DEFINITIONS}


def pythonic_calls(tools: Sequence[Tool]) -> str:
    """Rules whose `object` is a call of one of `tools`: name(key=value, ...).

    Raises InvalidRequestError naming the tool and the keyword for a schema that says more than that of its arguments.
    """
    rules = f"object: {' | '.join(f'object_{index}' for index in range(len(tools)))}\n"
    return rules + "".join(_call_rules(f"object_{index}", tool) for index, tool in enumerate(tools))


def _call_rules(rule: str, tool: Tool) -> str:
    schema = tool.parameters
    if unknown := sorted(schema.keys() - _ENFORCED - _NOTES):
        raise InvalidRequestError(
            f"the tool {tool.name!r} has {unknown[0]!r} at the top of its parameters: with calls written in Python it can't be "
            "enforced; leave it out",
            param="tools",
        )
    if odd := [key for key in schema.get("properties", {}) if not key.replace("-", "_").replace(".", "_").isidentifier()]:
        raise InvalidRequestError(
            f"the tool {tool.name!r} has the parameter {odd[0][:40]!r}: with calls written in Python it must be a name",
            param="tools",
        )
    properties, required = close(schema)["properties"], schema.get("required", [])
    properties = {key: value for key, value in properties.items() if value is not False or key in required}
    definitions = {key: schema[key] for key in _DEFINITIONS if key in schema}
    keys = sorted(properties, key=lambda key: key not in required)  # stable: otherwise in the order of the schema
    num_required = sum(key in required for key in keys)
    values = "".join(
        f"{rule}_{index}: {literal(f'{key}=')} {json_text(_with(properties[key], definitions), parameters_of(tool))}\n"
        for index, key in enumerate(keys)
    )
    return f"{rule}: {literal(f'{tool.name}(')} {_keywords(rule, num_required, len(keys))} {literal(')')}\n{values}"


def _with(schema: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    return (schema if isinstance(schema, dict) else {}) | definitions


def _keywords(rule: str, num_required: int, num_keys: int) -> str:
    """All required keywords, then any of the others, commas between."""
    required = ' ", " '.join(f"{rule}_{index}" for index in range(num_required))
    if num_required:
        return required + "".join(f' (", " {rule}_{index})?' for index in range(num_required, num_keys))
    chains = [
        f"{rule}_{first}" + "".join(f' (", " {rule}_{index})?' for index in range(first + 1, num_keys)) for first in range(num_keys)
    ]
    return f"({' | '.join(chains)})?" if chains else ""
