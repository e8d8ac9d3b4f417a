"""A function that a model may call."""

from typing import Any

import msgspec


class Tool(msgspec.Struct, frozen=True):
    """`parameters`: the JSON Schema of the arguments. `strict`: a call must satisfy it, even one that the model chose to make."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] = {}
    strict: bool = False

    def openai(self) -> dict[str, Any]:
        """As OpenAI's clients send it, which is what chat templates expect."""
        function: dict[str, Any] = {"name": self.name}
        if self.description is not None:
            function["description"] = self.description
        return {"type": "function", "function": function | {"parameters": self.parameters or NO_PARAMETERS}}


def allows_other_than_objects(parameters: dict[str, Any]) -> bool:
    """Whether the schema of a tool's parameters says of itself that they may be something else than an object.

    A schema that names no type, and nothing that stands for one, is one of objects.
    """
    definitions = parameters.get("$defs")
    waiting: list[Any] = [parameters]
    seen: set[str] = set()
    """References: each is followed once."""
    while waiting:
        schema = waiting.pop()
        if not isinstance(schema, dict):
            continue
        if schema.get("type", "object") not in ("object", ["object"]):
            return True
        values = schema["enum"] if isinstance(schema.get("enum"), list) else []
        if not all(isinstance(value, dict) for value in [*values, schema.get("const", {})]):
            return True
        if "type" in schema:
            continue
        for name in ("allOf", "anyOf", "oneOf"):
            waiting += schema[name] if isinstance(schema.get(name), list) else []
        reference = schema.get("$ref")
        if isinstance(reference, str) and isinstance(definitions, dict) and reference not in seen:
            seen.add(reference)
            waiting.append(definitions.get(reference.removeprefix("#/$defs/")))
    return False


NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
"""The schema of a tool that was given none."""
