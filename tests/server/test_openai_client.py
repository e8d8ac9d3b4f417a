"""The official client, against a real server."""

from collections.abc import Iterator

import openai
import pytest

from tests.server.running import RunningServer

GREEDY = {"temperature": 0, "extra_body": {"ignore_eos": True}}
MESSAGES = [{"role": "user", "content": "Tell me of trees."}]


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError, match="tiny"):
        client.models.retrieve("gpt-9")


def test_a_stream_says_what_the_whole_answer_says(client: openai.OpenAI) -> None:
    whole = client.completions.create(model="tiny", prompt="Once", max_tokens=24, **GREEDY)
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage.completion_tokens == 24
    assert whole.usage.prompt_tokens == 4
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(client.completions.create(model="tiny", prompt="Once", max_tokens=24, **options, **GREEDY))
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == whole.choices[0].text
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 24


def test_chat_streamed_and_whole(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="tiny", messages=MESSAGES, max_completion_tokens=20, **GREEDY)
    assert whole.choices[0].message.role == "assistant"
    chunks = list(client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=20, stream=True, **GREEDY))
    assert chunks[0].choices[0].delta.role == "assistant"
    joined = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert joined == whole.choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == ["length"]


def test_chat_without_max_tokens_may_use_the_rest_of_the_room(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(model="tiny", messages=MESSAGES, **GREEDY)
    assert reply.usage.total_tokens == 301  # pool of 300 slots; the last token needs none


def test_seeds_make_choices_different_and_repeatable(client: openai.OpenAI) -> None:
    def texts(seed: int) -> list[str]:
        extra = {"ignore_eos": True}
        reply = client.completions.create(model="tiny", prompt="Once", n=3, seed=seed, max_tokens=12, extra_body=extra)
        assert [choice.index for choice in reply.choices] == [0, 1, 2]
        assert reply.usage.completion_tokens == 36
        assert reply.usage.prompt_tokens == 4
        return [choice.text for choice in reply.choices]

    first = texts(7)
    assert len(set(first)) == 3
    assert texts(7) == first
    assert texts(8)[:2] == first[1:]  # choice i draws with seed + i


def test_several_prompts_in_one_request(client: openai.OpenAI) -> None:
    alone = [client.completions.create(model="tiny", prompt=text, max_tokens=8, **GREEDY).choices[0].text for text in ("ab", "cd")]
    together = client.completions.create(model="tiny", prompt=["ab", "cd"], max_tokens=8, n=2, **GREEDY)
    assert [choice.text for choice in together.choices] == [alone[0], alone[0], alone[1], alone[1]]
    assert together.usage.prompt_tokens == 4
    as_ids = client.completions.create(model="tiny", prompt=[[64, 65]], max_tokens=8, **GREEDY)
    assert (
        as_ids.choices[0].text == client.completions.create(model="tiny", prompt=[64, 65], max_tokens=8, **GREEDY).choices[0].text
    )


def test_completion_logprobs(client: openai.OpenAI) -> None:
    reply = client.completions.create(model="tiny", prompt="Once", max_tokens=5, logprobs=3, **GREEDY)
    logprobs = reply.choices[0].logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == len(logprobs.text_offset) == 5
    for own, top in zip(logprobs.token_logprobs, logprobs.top_logprobs, strict=True):
        assert own == max(top.values()) <= 0  # greedy
    streamed = client.completions.create(model="tiny", prompt="Once", max_tokens=5, logprobs=3, stream=True, **GREEDY)
    parts = [chunk.choices[0].logprobs for chunk in streamed]
    assert [token for part in parts if part for token in part.tokens] == logprobs.tokens
    assert [offset for part in parts if part for offset in part.text_offset] == logprobs.text_offset


def test_chat_logprobs(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=4, logprobs=True, top_logprobs=2, **GREEDY)
    content = reply.choices[0].logprobs.content
    assert [len(token.top_logprobs) for token in content] == [2, 2, 2, 2]
    assert all(token.logprob == token.top_logprobs[0].logprob for token in content)
    assert all(bytes(token.bytes).decode(errors="replace") == token.token for token in content)


def test_echo(client: openai.OpenAI) -> None:
    plain = client.completions.create(model="tiny", prompt="Once", max_tokens=6, **GREEDY).choices[0].text
    assert (
        client.completions.create(model="tiny", prompt="Once", max_tokens=6, echo=True, **GREEDY).choices[0].text == "Once" + plain
    )
    streamed = client.completions.create(model="tiny", prompt="Once", max_tokens=6, echo=True, stream=True, **GREEDY)
    assert "".join(chunk.choices[0].text for chunk in streamed) == "Once" + plain
    nothing = client.completions.create(model="tiny", prompt="Once", max_tokens=0, echo=True)
    assert (nothing.choices[0].text, nothing.choices[0].finish_reason) == ("Once", "length")
    assert nothing.usage.completion_tokens == 0


def test_default_max_tokens_gives_way_to_a_long_prompt(client: openai.OpenAI) -> None:
    assert client.completions.create(model="tiny", prompt="a" * 20, **GREEDY).usage.completion_tokens == 16
    assert client.completions.create(model="tiny", prompt="a" * 295, **GREEDY).usage.completion_tokens == 6


def test_errors_are_the_client_s_own(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="tiny", prompt="Once", temperature=-1)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.BadRequestError, match="audio"):
        client.chat.completions.create(model="tiny", messages=MESSAGES, audio={"voice": "alloy", "format": "wav"})
