"""langchain-openai."""

import openai
import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

from tests.conformance import weather
from tests.server.running import RunningServer

MODEL = "smollm2-135m"


@tool
def get_weather(city: weather.City) -> str:
    """The weather in a city, now."""
    return weather.get_weather(city)


@pytest.fixture(scope="module")
def chat(server: RunningServer) -> ChatOpenAI:
    return ChatOpenAI(
        base_url=f"{server.url}/v1", api_key="none", model=MODEL, temperature=0, max_tokens=64, max_retries=0, stream_usage=True
    )


def test_invoke_and_stream_are_equal(chat: ChatOpenAI) -> None:
    short = chat.bind(max_tokens=8)
    whole = short.invoke(weather.QUESTION)
    pieces = list(short.stream(weather.QUESTION))
    streamed = pieces[0]
    for piece in pieces[1:]:
        streamed += piece
    assert streamed.content == whole.content != ""
    assert streamed.response_metadata["finish_reason"] == whole.response_metadata["finish_reason"] == "length"
    assert streamed.usage_metadata["output_tokens"] == whole.usage_metadata["output_tokens"] == 8
    assert streamed.usage_metadata["input_token_details"]["cache_read"] == whole.usage_metadata["input_tokens"] - 1


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output_is_an_object(chat: ChatOpenAI, method: str) -> None:
    assert isinstance(chat.with_structured_output(weather.Report, method=method).invoke(weather.QUESTION), weather.Report)


@pytest.mark.parametrize("choice", ["get_weather", "any", "required"])
def test_a_bound_tool_is_called(chat: ChatOpenAI, choice: str) -> None:
    bound = chat.bind_tools([get_weather], tool_choice=choice, parallel_tool_calls=False)
    asked = bound.invoke(weather.QUESTION)
    (call,) = asked.tool_calls
    result = get_weather.invoke(call)
    assert isinstance(result, ToolMessage)
    told = chat.bind_tools([get_weather], tool_choice="none").invoke([("user", weather.QUESTION), asked, result], max_tokens=8)
    assert told.content
    assert not told.tool_calls


def test_calls_come_whole_from_a_stream(chat: ChatOpenAI) -> None:
    bound = chat.bind_tools([get_weather], tool_choice="any", parallel_tool_calls=False)
    pieces = list(bound.stream(weather.QUESTION))
    message = pieces[0]
    for piece in pieces[1:]:
        message += piece
    assert [call["name"] for call in message.tool_calls] == ["get_weather"]
    assert message.tool_calls[0]["args"]["city"] in ("Rome", "Oslo")


def test_batch_asks_for_several_at_once(chat: ChatOpenAI) -> None:
    assert all(reply.content for reply in chat.batch(["one", "two", "three"], max_tokens=4))


def test_the_completions_class(server: RunningServer) -> None:
    llm = OpenAI(base_url=f"{server.url}/v1", api_key="none", model=MODEL, temperature=0, max_tokens=6, max_retries=0)
    assert "Paris" in llm.invoke("The capital of France is")


def test_embeddings_are_refused_and_errors_are_openais(server: RunningServer, chat: ChatOpenAI) -> None:
    embeddings = OpenAIEmbeddings(
        base_url=f"{server.url}/v1", api_key="none", model=MODEL, check_embedding_ctx_length=False, max_retries=0
    )
    with pytest.raises(openai.BadRequestError, match="embeddings"):
        embeddings.embed_query("a")
    with pytest.raises(openai.BadRequestError, match="temperature"):
        chat.invoke("a", temperature=-1)
