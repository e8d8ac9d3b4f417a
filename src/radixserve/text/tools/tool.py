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


NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
"""The schema of a tool that was given none."""
