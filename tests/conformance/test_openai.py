"""The openai client."""

import asyncio
import json
from collections.abc import Iterator

import openai
import pytest

from tests.conformance.weather import FUNCTION, QUESTION, TOOL, Report, WeatherOf, get_weather
from tests.server.running import RunningServer

MODEL = "smollm2-135m"
MESSAGES = [{"role": "user", "content": QUESTION}]


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_a_second_chat_is_cached_and_says_so(client: openai.OpenAI) -> None:
    first = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=8, temperature=0)
    again = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=8, temperature=0)
    assert again.choices[0].message.content == first.choices[0].message.content
    assert again.usage.prompt_tokens_details.cached_tokens == again.usage.prompt_tokens - 1
    assert again.usage.total_tokens == again.usage.prompt_tokens + again.usage.completion_tokens


def test_the_stream_helper_ends_with_what_create_gives(client: openai.OpenAI) -> None:
    options = {"model": MODEL, "messages": MESSAGES, "temperature": 0, "extra_body": {"regex": "[A-Z][a-z ]{8,16}"}}
    whole = client.chat.completions.create(**options)
    with client.chat.completions.stream(**options, stream_options={"include_usage": True}) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert "".join(deltas) == final.choices[0].message.content == whole.choices[0].message.content
    assert final.choices[0].finish_reason == "stop"
    assert final.usage.completion_tokens == whole.usage.completion_tokens


def test_completions_whole_and_streamed(client: openai.OpenAI) -> None:
    options = {"model": MODEL, "prompt": "The capital of France is", "max_tokens": 6, "temperature": 0}
    whole = client.completions.create(**options).choices[0]
    chunks = list(client.completions.create(**options, stream=True))
    assert "Paris" in whole.text
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.text
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == [whole.finish_reason]


@pytest.mark.parametrize("streamed", [False, True])
def test_parse_gives_an_object(client: openai.OpenAI, streamed: bool) -> None:
    options = {"model": MODEL, "messages": MESSAGES, "response_format": Report, "max_tokens": 64, "temperature": 0}
    if streamed:
        with client.chat.completions.stream(**options) as stream:
            reply = stream.get_final_completion()
    else:
        reply = client.chat.completions.parse(**options)
    assert isinstance(reply.choices[0].message.parsed, Report)
    assert reply.choices[0].finish_reason == "stop"


def test_parse_says_when_the_answer_was_cut(client: openai.OpenAI) -> None:
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(model=MODEL, messages=MESSAGES, response_format=Report, max_tokens=3)


@pytest.mark.parametrize("streamed", [False, True])
def test_parsed_tool_calls(client: openai.OpenAI, streamed: bool) -> None:
    options = {"tools": [openai.pydantic_function_tool(WeatherOf)], "tool_choice": "required", "temperature": 0, "max_tokens": 64}
    if streamed:
        with client.chat.completions.stream(model=MODEL, messages=MESSAGES, parallel_tool_calls=False, **options) as stream:
            kinds = [event.type for event in stream]
            reply = stream.get_final_completion()
        assert "tool_calls.function.arguments.delta" in kinds
    else:
        reply = client.chat.completions.parse(model=MODEL, messages=MESSAGES, parallel_tool_calls=False, **options)
    (call,) = reply.choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, WeatherOf)
    assert reply.choices[0].finish_reason == "tool_calls"


def test_a_loop_of_tools_goes_on_from_the_result(client: openai.OpenAI) -> None:
    choice = {"type": "function", "function": {"name": "get_weather"}}
    asked = client.chat.completions.create(model=MODEL, messages=MESSAGES, tools=[TOOL], tool_choice=choice, max_tokens=64)
    message = asked.choices[0].message
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": get_weather(**json.loads(call.function.arguments))}
        for call in message.tool_calls
    ]
    history = [*MESSAGES, message.model_dump(exclude_none=True), *results]
    told = client.chat.completions.create(model=MODEL, messages=history, tools=[TOOL], tool_choice="none", max_tokens=8)
    assert told.choices[0].message.content
    assert told.choices[0].message.tool_calls is None
    assert told.usage.prompt_tokens_details.cached_tokens > asked.usage.prompt_tokens // 2


def test_n_choices_share_one_prompt(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(model=MODEL, messages=MESSAGES, n=3, seed=1, max_tokens=6, logprobs=True, top_logprobs=2)
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    assert all(len(token.top_logprobs) == 2 for choice in reply.choices for token in choice.logprobs.content)
    assert reply.usage.completion_tokens <= 18


def test_sixteen_at_once_on_the_async_client(server: RunningServer) -> None:
    async def ask() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            options = {"model": MODEL, "max_tokens": 4, "temperature": 0}
            prompts = [f"{number} + 1 =" for number in range(16)]
            replies = await asyncio.gather(*(client.completions.create(prompt=prompt, **options) for prompt in prompts))
            alone = [await client.completions.create(prompt=prompt, **options) for prompt in prompts[:2]]
            assert [reply.choices[0].text for reply in alone] == [reply.choices[0].text for reply in replies[:2]]
            return [reply.choices[0].text for reply in replies]

    assert all(asyncio.run(ask()))


def test_leaving_a_stream_ends_it_in_the_server(server: RunningServer, client: openai.OpenAI) -> None:
    with client.completions.create(
        model=MODEL, prompt="Once", max_tokens=4000, stream=True, extra_body={"ignore_eos": True}
    ) as stream:
        next(iter(stream))
    assert server.wait_idle()["finished"]["abort"] >= 1


def test_errors_are_the_clients_own(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-9", messages=MESSAGES)
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "a " * 9000}])
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="embeddings"):
        client.embeddings.create(model=MODEL, input="a")
    form = {"type": "json_schema", "json_schema": {"name": "odd", "schema": {"type": "object", "propertyNames": {"pattern": "a"}}}}
    with pytest.raises(openai.BadRequestError, match="propertyNames"):
        client.chat.completions.create(model=MODEL, messages=MESSAGES, response_format=form)


def test_a_reply_names_its_request(client: openai.OpenAI) -> None:
    raw = client.completions.with_raw_response.create(model=MODEL, prompt="Once", max_tokens=1)
    assert raw.headers["x-request-id"] in raw.parse().id
    assert raw.parse()._request_id == raw.headers["x-request-id"]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_response_goes_on_from_another(client: openai.OpenAI, streamed: bool) -> None:
    options = {"model": MODEL, "max_output_tokens": 8, "temperature": 0}
    first = client.responses.create(input=QUESTION, instructions="Be brief.", **options)
    assert first.output_text
    assert (first.status, first.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    following = {"input": "And in Oslo?", "instructions": "Be brief.", "previous_response_id": first.id} | options
    if streamed:
        with client.responses.stream(**following) as stream:
            events = list(stream)
        assert events[-1].type == "response.incomplete"
        second = events[-1].response
        assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == second.output_text
    else:
        second = client.responses.create(**following)
    assert second.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens
    assert client.responses.retrieve(second.id).output_text == second.output_text


@pytest.mark.parametrize("streamed", [False, True])
def test_a_response_is_parsed(client: openai.OpenAI, streamed: bool) -> None:
    options = {"model": MODEL, "input": QUESTION, "text_format": Report, "max_output_tokens": 64, "temperature": 0}
    if streamed:
        with client.responses.stream(**options) as stream:
            response = stream.get_final_response()
    else:
        response = client.responses.parse(**options)
    assert isinstance(response.output_parsed, Report)
    assert response.status == "completed"


@pytest.mark.parametrize("streamed", [False, True])
def test_a_loop_of_tools_over_responses(client: openai.OpenAI, streamed: bool) -> None:
    options = {"model": MODEL, "tools": [{"type": "function", "strict": True} | FUNCTION], "temperature": 0}
    choice = {"type": "function", "name": "get_weather"}
    if streamed:
        with client.responses.stream(input=QUESTION, tool_choice=choice, **options) as stream:
            kinds = [event.type for event in stream]
            asked = stream.get_final_response()
        assert kinds[0] == "response.created"
        assert kinds[-1] == "response.completed"
        assert "response.function_call_arguments.delta" in kinds
    else:
        asked = client.responses.create(input=QUESTION, tool_choice=choice, **options)
    (call,) = [item for item in asked.output if item.type == "function_call"]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": get_weather(**json.loads(call.arguments))}
    told = client.responses.create(
        input=[result], previous_response_id=asked.id, tool_choice="none", max_output_tokens=8, **options
    )
    assert told.output_text
    assert told.usage.input_tokens_details.cached_tokens > asked.usage.input_tokens // 2
