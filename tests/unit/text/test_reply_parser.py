"""Answers taken apart: reasoning, text and tool calls in every form, whole and in any pieces."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixserve.text.reply_parser import ReplyParser
from radixserve.text.reply_pieces import Piece, ReasoningPiece, TextPiece, ToolArguments, ToolCallStart
from radixserve.text.reply_reader import ReplyReader
from radixserve.text.tools.forms import TOOL_FORMS, find_tool_form

NAMES = ("f", "get_weather")
HERMES = '<tool_call>\n{"name": "f", "arguments": {"a": "x<y}", "b": [1, {}]}}\n</tool_call>'
FRAGMENTS = [
    *["<tool_call>", "</tool_call>", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "<|python_start|>", "<|python_end|>"],
    *["<think>", "</think>", '{"name": "f", ', '"arguments": {', '"parameters": ', '"a": "é\\"}"', "}}", "}", "[", "]", ", ", ";"],
    *["[f(", "a=", "'x\\n'", '"y"', "1", ")", "{", "\n", " ", "Hi", "<", "Zoë 🙂", "\\"],
]


def parse(form: str | None, text: str, cuts: list[int] | None = None, **options: Any) -> list[Piece]:
    """The pieces, joined, with call ids left out."""
    parser = ReplyParser(TOOL_FORMS[form] if form else None, NAMES, **options)
    ends = [0, *sorted(cut % (len(text) + 1) for cut in cuts or ()), len(text)]
    reader = ReplyReader()
    for begin, end in pairwise(ends):
        for piece in parser.push(text[begin:end]):
            reader.emit(piece)
    for piece in parser.finish():
        reader.emit(replace(piece, id="") if isinstance(piece, ToolCallStart) else piece)
    return [replace(piece, id="") if isinstance(piece, ToolCallStart) else piece for piece in reader.take_found()]


def calls(pieces: list[Piece]) -> list[tuple[str, str]]:
    """(name, arguments) of each call."""
    names = [piece.name for piece in pieces if isinstance(piece, ToolCallStart)]
    return [
        (name, "".join(piece.text for piece in pieces if isinstance(piece, ToolArguments) and piece.index == index))
        for index, name in enumerate(names)
    ]


def text_of(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, TextPiece))


@pytest.mark.parametrize("form", TOOL_FORMS)
@given(
    parts=st.lists(st.sampled_from(FRAGMENTS), max_size=14), cuts=st.lists(st.integers(0, 500), max_size=12), thinks=st.booleans()
)
def test_any_cut_gives_the_same(form: str, parts: list[str], cuts: list[int], thinks: bool) -> None:
    text = "".join(parts)
    whole = parse(form, text, reasoning=thinks)
    assert parse(form, text, cuts, reasoning=thinks) == whole
    assert parse(form, text, list(range(len(text))), reasoning=thinks) == whole


@pytest.mark.parametrize("form", TOOL_FORMS)
@given(text=st.text())
def test_text_without_calls_stays_as_it_is(form: str, text: str) -> None:
    assert text_of(parse(form, text)) == text


CALLS = [
    ("hermes", HERMES, [("f", '{"a": "x<y}", "b": [1, {}]}')]),
    ("hermes", HERMES + "\n" + HERMES, [("f", '{"a": "x<y}", "b": [1, {}]}')] * 2),
    ("hermes", HERMES.replace('"f"', '"new"'), [("new", '{"a": "x<y}", "b": [1, {}]}')]),
    ("hermes", '<tool_call>{"arguments": {"q": 1}, "name": "f"}</tool_call>', [("f", '{"q": 1}')]),
    ("hermes", '<tool_call>{"name": "f"}</tool_call>', [("f", "{}")]),
    ("hermes", '<tool_call>{"name": "f", "arguments": "{\\"q\\": 1}"}</tool_call>', [("f", '{"q": 1}')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": null}</tool_call>', [("f", "{}")]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "</tool_call>"}}</tool_call>', [("f", '{"a": "</tool_call>"}')]),
    ("llama3", '{"name": "f", "parameters": {"a": 1}}; {"name": "f", "parameters": {}}', [("f", '{"a": 1}'), ("f", "{}")]),
    ("llama3", '<|python_tag|>{"type": "function", "name": "new", "parameters": {"a": 1}}', [("new", '{"a": 1}')]),
    ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}, {"name": "g"}]', [("f", '{"a": 1}'), ("g", "{}")]),
    ("mistral", '[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g{"b": []}', [("f", '{"a": 1}'), ("g", '{"b": []}')]),
    ("pythonic", "[f(a='x\\n\\u00e9\"', b=[1, -2.5, True], c={'k': None, \"z\": (1,)}), get_weather()]",
     [("f", '{"a": "x\\né\\"", "b": [1, -2.5, true], "c": {"k": null, "z": [1]}}'), ("get_weather", "{}")]),
    ("pythonic", "<|python_start|>[f(a=1)]<|python_end|>", [("f", '{"a": 1}')]),
]  # fmt: skip


@pytest.mark.parametrize(("form", "text", "expected"), CALLS)
def test_calls_are_found(form: str, text: str, expected: list[tuple[str, str]]) -> None:
    pieces = parse(form, text)
    assert calls(pieces) == expected
    assert text_of(pieces) == ""


NO_CALLS = [
    ("hermes", "Use <tool_call> to call."),
    ("hermes", '<tool_call>{"name": 5}</tool_call>'),
    ("hermes", '<tool_call>{"name": "f", "other": 1}'),
    ("hermes", "a < b </tool_call>"),
    ("llama3", '{"name": "Bob", "age": 3}'),
    ("llama3", '{"name": "Bob", "parameters": {}}'),
    ("llama3", 'Like {"name": "f", "parameters": {}}'),
    ("mistral", "[1, 2]"),
    ("mistral", "[TOOL_CALLS]"),
    ("pythonic", "[1, 2]"),
    ("pythonic", "[f, (a=1)]"),
    ("pythonic", "[g(a=1)]"),
]


@pytest.mark.parametrize(("form", "text"), NO_CALLS)
def test_false_starts_come_back_as_text(form: str, text: str) -> None:
    assert parse(form, text) == [TextPiece(text)]


def test_arguments_stream_as_they_come() -> None:
    parser = ReplyParser(TOOL_FORMS["hermes"], NAMES)
    assert parser.push('Let me see.\n<tool_call>{"name": "f", "argu') == [TextPiece("Let me see.")]
    start, arguments = parser.push('ments": {"city": "Par')
    assert isinstance(start, ToolCallStart)
    assert arguments == ToolArguments(0, '{"city": "Par')
    assert parser.push('is"}') == [ToolArguments(0, 'is"}')]
    assert parser.push("}\n</tool_call>") == parser.finish() == []
    assert parser.has_calls


def test_a_call_is_found_behind_a_false_start() -> None:
    pieces = parse("hermes", '<tool_call><tool_call>{"name": "f", "arguments": {}}</tool_call>')
    assert text_of(pieces) == "<tool_call>"
    assert calls(pieces) == [("f", "{}")]


CALLS_TO_CUT = [
    ("hermes", HERMES, '"arguments": {"', "}\n</"),
    ("llama3", '{"name": "f", "parameters": {"city": "Paris"}}', '"parameters": {', "}"),
    ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": {"city": "Paris"}}]', '"arguments": {', "}]"),
    ("mistral", '[TOOL_CALLS]f[ARGS]{"city": "Paris"}', "[ARGS]{", ""),
    ("pythonic", "[f(city='Paris')]", "(", "]"),
]


@pytest.mark.parametrize(("form", "text", "begin", "rest"), CALLS_TO_CUT)
def test_a_call_is_one_to_make_from_the_end_of_its_arguments_on(form: str, text: str, begin: str, rest: str) -> None:
    first, last = text.index(begin) + len(begin), text.rindex(rest)
    for cut in range(first, len(text) + 1):
        parser = ReplyParser(TOOL_FORMS[form], NAMES)
        pieces = parser.push(text[:cut]) + parser.finish()
        assert len(calls(pieces)) == 1
        assert parser.has_calls == (cut >= last), text[:cut]


def test_one_call_that_cant_be_made_spoils_the_others() -> None:
    parser = ReplyParser(TOOL_FORMS["hermes"], NAMES)
    parser.push(HERMES + '<tool_call>{"name": "f", "arguments": {"city": Paris}}</tool_call>' + HERMES)
    parser.finish()
    assert not parser.has_calls


def test_a_call_that_is_cut_off_stays_a_call() -> None:
    assert calls(parse("hermes", '<tool_call>{"name": "f", "arguments": {"a": [1, 2')) == [("f", '{"a": [1, 2')]
    assert calls(parse("pythonic", "[f(a='x")) == [("f", '{"a": "x')]


@pytest.mark.parametrize("cut", range(1, len('\n<tool_call>\n{"name": "f", "argum')))
def test_a_second_call_that_is_cut_off_early_is_no_text(cut: int) -> None:
    pieces = parse("hermes", HERMES + "\n" + HERMES[: cut - 1])
    assert len(calls(pieces)) == 1
    assert text_of(pieces) == ""


def test_deep_arguments_do_not_overflow() -> None:
    deep = '{"a": ' * 5000 + "1" + "}" * 5000
    assert calls(parse("hermes", f'<tool_call>{{"name": "f", "arguments": {deep}}}</tool_call>')) == [("f", deep)]
    assert len(calls(parse("pythonic", "[f(a=" + "[" * 5000))) == 1


@pytest.mark.parametrize("form", [None, "hermes"])
@pytest.mark.parametrize(
    ("text", "thinking", "reasoning", "answer"),
    [
        ("<think>\nI see\n a<b </think>\n\nYes", False, "I see\n a<b", "Yes"),
        ("\n<think>so</think>Yes", False, "so", "Yes"),
        ("so</think> Yes", True, "so", "Yes"),
        ("so it is", True, "so it is", ""),
        ("No <think> here", False, "", "No <think> here"),
        (" No", False, "", " No"),
    ],
)
def test_reasoning(form: str | None, text: str, thinking: bool, reasoning: str, answer: str) -> None:
    pieces = parse(form, text, list(range(len(text))), reasoning=True, thinking=thinking)
    assert "".join(piece.text for piece in pieces if isinstance(piece, ReasoningPiece)) == reasoning
    assert text_of(pieces) == answer


def test_the_form_is_read_off_the_chat_template() -> None:
    assert find_tool_form(None).name == find_tool_form("{{ messages }}").name == "hermes"
    assert find_tool_form("... [TOOL_CALLS] ...").name == "mistral"
    assert find_tool_form("... <|python_tag|> ...").name == "llama3"
    assert find_tool_form("... [func_name1(params_name1=...)] ...").name == "pythonic"
