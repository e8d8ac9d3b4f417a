"""Halves of UTF-16 pairs, which JSON and Python can escape alone, never reach what has to be UTF-8."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixserve.json_text import read_json
from radixserve.text.chat_messages import normalize_messages
from radixserve.text.chat_template import ChatTemplate
from radixserve.text.surrogates import join_all_surrogates, join_surrogates
from radixserve.text.tools.forms import TOOL_FORMS
from radixserve.text.tools.json_call import read_arguments
from radixserve.text.tools.teaching import spell_out_calls
from tests.unit.text.test_reply_parser import calls, parse

TEXTS = st.text(st.sampled_from('a\\"\ud83d\ude00é😀'), max_size=8)


@given(text=TEXTS)
def test_joined_text_is_utf_8_and_keeps_what_is_whole(text: str) -> None:
    joined = join_surrogates(text)
    joined.encode()
    assert joined.replace("\ufffd", "").encode("utf-16-le") == b"".join(
        char.encode("utf-16-le") for char in joined if char != "\ufffd"
    )
    assert join_surrogates("".join(char for char in text if char < "\ud800" or char > "\udfff")) == "".join(
        char for char in text if char < "\ud800" or char > "\udfff"
    )
    assert join_all_surrogates({text: [text, 1]}) == {joined: [joined, 1]}


@given(text=TEXTS, cuts=st.lists(st.integers(0, 99), max_size=5))
def test_calls_of_every_form_are_utf_8(text: str, cuts: list[int]) -> None:
    """The arguments say what the model wrote; where it wrote half a character, the replacement mark or its escape."""
    escaped = json.dumps(text)
    written = {
        "hermes": f'<tool_call>\n{{"name": "f", "arguments": {{"a": {escaped}}}}}\n</tool_call>',
        "llama3": f'{{"name": "f", "parameters": {{"a": {escaped}}}}}',
        "mistral": f'[TOOL_CALLS][{{"name": "f", "arguments": {{"a": {escaped}}}}}]',
        "pythonic": f"[f(a={escaped})]",
    }
    assert written.keys() == TOOL_FORMS.keys()
    for form, answer in written.items():
        [(name, arguments)] = calls(parse(form, answer, cuts))
        assert name == "f"
        arguments.encode()
        assert read_arguments(arguments) == {"a": join_surrogates(text)}


def test_a_pair_of_escapes_is_one_character() -> None:
    assert calls(parse("pythonic", r'[f(a="\ud83d\ude00", b="\ud83dx", c="\ude00")]')) == [
        ("f", '{"a": "😀", "b": "\ufffdx", "c": "\ufffd"}')
    ]


@pytest.mark.parametrize("template", ["{{ messages[0].tool_calls[0].function.arguments | tojson }}", None])
def test_a_history_shows_calls_as_they_were_written(template: str | None) -> None:
    """What the server itself may have answered is taken back on the next turn."""
    written = r'{"a": "\ud83d", "b": "\ud83d\ude00"}'
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": written}}
    messages = normalize_messages([{"role": "assistant", "content": None, "tool_calls": [call]}])
    shown = spell_out_calls(messages)[0]["content"] if template is None else ChatTemplate(template, {}).render(messages)
    assert r'{"a": "\ud83d", "b": "😀"}' in shown
    shown.encode()


def test_a_template_that_prints_a_text_prints_the_mark() -> None:
    assert ChatTemplate("{{ messages[0].content }}", {}).render([{"role": "user", "content": "a\ud83d"}]) == "a\ufffd"


@pytest.mark.parametrize("text", [r'"\ud83d"', r'{"\ude00": 1}', r'[{"a": ["\ud83d\ud83d"]}]'])
def test_json_that_must_be_whole_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="half of a character"):
        read_json(text)
    value: Any = read_json(text, surrogates=True)
    json.dumps(join_all_surrogates(value), ensure_ascii=False).encode()
