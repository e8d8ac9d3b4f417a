"""How conversations of /v1/responses and /v1/messages become messages for the chat template."""

from typing import Any

import pytest

from radixserve.errors import InvalidRequestError
from radixserve.server.anthropic.history import read_history
from radixserve.server.responses.items import read_items

CALL = {"type": "function_call", "call_id": "1", "name": "f", "arguments": '{"a": 1}'}
CALLED = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
CALLED_AS_TEXT = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


def thought(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": []}]}


def test_what_the_assistant_did_in_a_row_is_one_turn() -> None:
    items = [{"role": "user", "content": "q"}, thought("t"), said("I call."), CALL, CALL, said("Done.")]
    result = {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "r"}]}
    assert read_items([*items, result, thought("u"), said("It is r.")]) == [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "I call.Done.", "reasoning_content": "t", "tool_calls": [CALLED_AS_TEXT, CALLED_AS_TEXT]},
        {"role": "tool", "tool_call_id": "1", "content": "r"},
        {"role": "assistant", "content": "It is r.", "reasoning_content": "u"},
    ]


def test_two_answers_in_a_row_stay_two() -> None:
    assert len(read_items([said("a"), said("b")])) == 2


def test_thoughts_that_led_to_nothing_are_dropped() -> None:
    assert read_items([thought("t"), {"role": "user", "content": "q"}, said("a")]) == [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "a"},
    ]


def test_blocks_of_a_turn_are_one_message_and_results_come_first() -> None:
    assistant = [
        {"type": "thinking", "thinking": "t", "signature": ""},
        {"type": "text", "text": "I call."},
        {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}},
    ]
    user = [{"type": "text", "text": "Go on."}, {"type": "tool_result", "tool_use_id": "1", "content": "r"}]
    assert read_history([("assistant", assistant), ("user", user)]) == [
        {"role": "assistant", "content": "I call.", "reasoning_content": "t", "tool_calls": [CALLED]},
        {"role": "tool", "tool_call_id": "1", "content": "r"},
        {"role": "user", "content": [{"type": "text", "text": "Go on."}]},
    ]


@pytest.mark.parametrize(
    "content", [[{"type": "document"}], [{"type": "text"}], [{"type": "tool_result", "content": [{"type": "image"}]}]]
)
def test_other_blocks_are_refused_by_place(content: list[dict[str, Any]]) -> None:
    with pytest.raises(InvalidRequestError, match=r"messages\[0\]\.content\[0\]"):
        read_history([("user", content)])


def test_a_thought_is_text() -> None:
    with pytest.raises(InvalidRequestError, match=r"messages\[0\]\.content\[0\] must have a text as thinking"):
        read_history([("assistant", [{"type": "thinking", "thinking": 5}])])


@pytest.mark.parametrize("wrong", [{"name": 1}, {"input": "{}"}, {"input": None}])
def test_a_call_needs_a_name_and_an_object(wrong: dict[str, Any]) -> None:
    block = {"type": "tool_use", "id": "1", "name": "f", "input": {}} | wrong
    with pytest.raises(InvalidRequestError, match=r"messages\[0\]\.content\[0\] must have a name"):
        read_history([("assistant", [block])])
