"""A function for models to call, and the type of its report. Every value is bounded, so that a grammar makes any model's right."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

City = Literal["Rome", "Oslo"]
QUESTION = "What is the weather in Rome?"


class Report(BaseModel):
    """The weather in a city."""

    city: City
    degrees: Annotated[int, Field(ge=-40, le=40)]
    sky: Literal["clear", "clouds", "rain", "snow"]


class WeatherOf(BaseModel):
    """Asks for the weather in a city."""

    city: City


PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
FUNCTION: dict[str, Any] = {"name": "get_weather", "description": "The weather in a city, now", "parameters": PARAMETERS}
TOOL: dict[str, Any] = {"type": "function", "function": FUNCTION}


def get_weather(city: str) -> str:
    """The weather in a city, now."""
    return {"Rome": "clear, 24 degrees", "Oslo": "snow, 3 degrees below zero"}[city]
