"""litellm, by its `openai/` and `text-completion-openai/` providers."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # read at import: else it downloads prices
import litellm

from tests.conformance.weather import QUESTION, TOOL, Report
from tests.server.running import RunningServer

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")  # of types that litellm imports late

MESSAGES = [{"role": "user", "content": QUESTION}]


@pytest.fixture(scope="module")
def options(server: RunningServer) -> Iterator[dict[str, Any]]:
    yield {
        "model": "openai/smollm2-135m",
        "api_base": f"{server.url}/v1",
        "api_key": "none",
        "temperature": 0,
        "max_tokens": 8,
        "num_retries": 0,
    }
    for client in litellm.in_memory_llm_clients_cache.cache_dict.values():  # it keeps them, open, for ever
        client.close()


def test_completion_counts_what_was_cached(options: dict[str, Any]) -> None:
    litellm.completion(messages=MESSAGES, **options)
    reply = litellm.completion(messages=MESSAGES, **options)
    assert reply.choices[0].finish_reason == "length"
    assert reply.usage.completion_tokens == 8
    assert reply.usage.prompt_tokens_details.cached_tokens == reply.usage.prompt_tokens - 1


def test_a_stream_is_the_whole_and_has_its_usage(options: dict[str, Any]) -> None:
    whole = litellm.completion(messages=MESSAGES, **options)
    chunks = list(litellm.completion(messages=MESSAGES, stream=True, stream_options={"include_usage": True}, **options))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == 8
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens > 0
    rebuilt = litellm.stream_chunk_builder(chunks, messages=MESSAGES)
    assert rebuilt.choices[0].message.content == whole.choices[0].message.content


def test_text_completion(options: dict[str, Any]) -> None:
    options = options | {"model": "text-completion-openai/smollm2-135m"}
    whole = litellm.text_completion(prompt="The capital of France is", **options)
    assert "Paris" in whole.choices[0].text
    chunks = list(litellm.text_completion(prompt="The capital of France is", stream=True, **options))
    assert "".join(chunk.choices[0].text or "" for chunk in chunks if chunk.choices) == whole.choices[0].text


def test_a_schema_and_a_tool(options: dict[str, Any]) -> None:
    options = options | {"max_tokens": 64}
    reply = litellm.completion(messages=MESSAGES, response_format=Report, **options)
    assert Report.model_validate_json(reply.choices[0].message.content)
    reply = litellm.completion(messages=MESSAGES, tools=[TOOL], tool_choice="required", parallel_tool_calls=False, **options)
    (call,) = reply.choices[0].message.tool_calls
    assert call.function.name == "get_weather"
    assert reply.choices[0].finish_reason == "tool_calls"


def test_errors_are_litellms_own(options: dict[str, Any]) -> None:
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(messages=MESSAGES, **options | {"model": "openai/gpt-9"})
    with pytest.raises(litellm.ContextWindowExceededError):
        litellm.completion(messages=[{"role": "user", "content": "a " * 9000}], **options)
    with pytest.raises(litellm.BadRequestError, match="temperature"):
        litellm.completion(messages=MESSAGES, **options | {"temperature": -1})
