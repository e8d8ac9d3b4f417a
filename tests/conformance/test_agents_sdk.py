"""The OpenAI Agents SDK: its loop calls a tool and goes on from the result, over /v1/responses and over chats."""

import asyncio

import openai
import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
    set_tracing_disabled,
)

from tests.conformance import weather
from tests.server.running import RunningServer

MODEL = "smollm2-135m"


@pytest.mark.parametrize("model_class", [OpenAIResponsesModel, OpenAIChatCompletionsModel])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_is_called_and_an_answer_follows(
    server: RunningServer, model_class: type[OpenAIResponsesModel] | type[OpenAIChatCompletionsModel], streamed: bool
) -> None:
    set_tracing_disabled(True)
    asked_for: list[str] = []

    @function_tool
    def get_weather(city: weather.City) -> str:
        """The weather in a city, now."""
        asked_for.append(city)
        return weather.get_weather(city)

    async def run() -> tuple[str, int]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            agent = Agent(
                name="forecaster",
                instructions="Tell the weather in a few words.",
                tools=[get_weather],
                model=model_class(MODEL, client),
                model_settings=ModelSettings(
                    tool_choice="required", parallel_tool_calls=False, temperature=0, max_tokens=48, include_usage=True
                ),
            )
            config = RunConfig(tracing_disabled=True)
            if not streamed:
                result = await Runner.run(agent, weather.QUESTION, max_turns=3, run_config=config)
            else:
                result = Runner.run_streamed(agent, weather.QUESTION, max_turns=3, run_config=config)
                async for _ in result.stream_events():
                    pass
            usage = result.context_wrapper.usage
            return str(result.final_output), usage.input_tokens_details.cached_tokens

    answer, cached = asyncio.run(run())
    assert len(asked_for) == 1
    assert answer
    assert cached > 0
