"""The anthropic client."""

from collections.abc import Iterator

import anthropic
import pytest

from tests.conformance.weather import FUNCTION, QUESTION, get_weather
from tests.server.running import RunningServer

MODEL = "smollm2-135m"
MESSAGES = [{"role": "user", "content": QUESTION}]

GREEDY = {"extra_body": {"temperature": 0}}
"""The client knows no temperature any more."""

TOOLS = [{"name": FUNCTION["name"], "description": FUNCTION["description"], "input_schema": FUNCTION["parameters"]}]


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as client:
        yield client


def test_a_message_and_its_stream_are_equal(client: anthropic.Anthropic) -> None:
    options = {"model": MODEL, "messages": MESSAGES, "system": "Be brief.", "max_tokens": 8, **GREEDY}
    whole = client.messages.create(**options)
    with client.messages.stream(**options) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == final.content[0].text == whole.content[0].text
    assert final.stop_reason == whole.stop_reason == "max_tokens"
    assert final.usage.output_tokens == whole.usage.output_tokens == 8
    assert final.usage.cache_read_input_tokens > 0
    assert final.usage.input_tokens + final.usage.cache_read_input_tokens == (
        whole.usage.input_tokens + whole.usage.cache_read_input_tokens
    )


def test_tokens_are_counted_as_they_are_used(client: anthropic.Anthropic) -> None:
    counted = client.messages.count_tokens(model=MODEL, messages=MESSAGES, tools=TOOLS).input_tokens
    usage = client.messages.create(model=MODEL, messages=MESSAGES, tools=TOOLS, max_tokens=1).usage
    assert usage.input_tokens + usage.cache_read_input_tokens == counted


@pytest.mark.parametrize("streamed", [False, True])
def test_a_loop_of_tools_goes_on_from_the_result(client: anthropic.Anthropic, streamed: bool) -> None:
    options = {"model": MODEL, "tools": TOOLS, "max_tokens": 64, **GREEDY}
    forced = {"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True}
    if streamed:
        with client.messages.stream(messages=MESSAGES, tool_choice=forced, **options) as stream:
            asked = stream.get_final_message()
    else:
        asked = client.messages.create(messages=MESSAGES, tool_choice=forced, **options)
    assert asked.stop_reason == "tool_use"
    (call,) = [part for part in asked.content if part.type == "tool_use"]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": get_weather(**call.input)}
    history = [*MESSAGES, {"role": "assistant", "content": asked.content}, {"role": "user", "content": [result]}]
    told = client.messages.create(messages=history, tool_choice={"type": "none"}, **options | {"max_tokens": 8})
    assert told.content[0].type == "text"
    assert told.usage.cache_read_input_tokens > 0


def test_a_stop_sequence_is_named(client: anthropic.Anthropic) -> None:
    reply = client.messages.create(model=MODEL, messages=MESSAGES, max_tokens=64, stop_sequences=[" "], **GREEDY)
    assert (reply.stop_reason, reply.stop_sequence) == ("stop_sequence", " ")


def test_errors_are_the_clients_own(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="claude-9"):
        client.messages.create(model="claude-9", messages=MESSAGES, max_tokens=1)
    with pytest.raises(anthropic.BadRequestError, match="temperature") as caught:
        client.messages.create(model=MODEL, messages=MESSAGES, max_tokens=1, extra_body={"temperature": -1})
    assert caught.value.body["error"]["type"] == "invalid_request_error"
