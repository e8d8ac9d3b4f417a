"""The shapes of messages."""

from typing import Any

import pytest

from radixserve.errors import InvalidRequestError
from radixserve.text.chat_messages import normalize_messages


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("", ""),
        ("x", "x"),
        ([], ""),
        ([{"type": "text", "text": "a"}], "a"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
    ],
)
def test_content_becomes_text(content: Any, text: str) -> None:
    message = {"role": "user", "content": content, "name": "x"}
    assert normalize_messages([message]) == [{"role": "user", "content": text, "name": "x"}]
    assert message["content"] == content


def test_absent_content_is_empty_and_arguments_are_parsed() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"b": 1, "a": "é"}'}}
    (message,) = normalize_messages([{"role": "assistant", "tool_calls": [call]}])
    assert message["content"] == ""
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": {"b": 1, "a": "é"}}
    assert call["function"]["arguments"] == '{"b": 1, "a": "é"}'


@pytest.mark.parametrize("written", ["{", "Paris", "[" * 100_000], ids=len)
def test_arguments_that_are_no_json_stay_as_the_model_wrote_them(written: str) -> None:
    call = {"function": {"name": "f", "arguments": written}}
    (message,) = normalize_messages([{"role": "assistant", "tool_calls": [call]}])
    assert message["tool_calls"] == [call]


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "empty"),
        ("hi", "empty"),
        (["hi"], r"messages\[0\] is a str"),
        ([{"content": "x"}], r"messages\[0\].role"),
        ([{"role": "user", "content": 5}], r"messages\[0\].content is a int"),
        (
            [{"role": "user"}, {"role": "user", "content": [{"type": "image_url"}]}],
            r"messages\[1\].content\[0\] has the type 'image_url'",
        ),
        ([{"role": "user", "content": ["x"]}], "type 'str'"),
        ([{"role": "user", "content": [{"type": "text", "text": None}]}], "text is missing"),
        ([{"role": "assistant", "tool_calls": "x"}], "list of objects"),
        ([{"role": "assistant", "tool_calls": [{}]}], "function.name is missing"),
        ([{"role": "assistant", "tool_calls": [{"function": {"name": 5}}]}], "function.name is missing"),
    ],
)
def test_other_shapes_are_refused(messages: Any, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason) as caught:
        normalize_messages(messages)
    assert caught.value.param == "messages"
    assert len(caught.value.message) < 400
