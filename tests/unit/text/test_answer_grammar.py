"""Grammars of whole answers, held against texts by llguidance; what they force, the parser of the same form reads."""

import json

import pytest
from llguidance import LLMatcher, LLTokenizer

from radixserve.errors import InvalidRequestError
from radixserve.sampling.embedded_schemas import enforced
from radixserve.sampling_params import Grammar
from radixserve.text.answer_grammar import ToolUse, answer_grammar
from radixserve.text.reply_parser import ReplyParser
from radixserve.text.reply_pieces import TextPiece, ToolArguments, ToolCallStart
from radixserve.text.tools.forms import TOOL_FORMS
from radixserve.text.tools.tool import Tool

BYTES = LLTokenizer("byte")
WEATHER = Tool(
    "get_weather",
    parameters={
        "type": "object",
        "properties": {"city": {"$ref": "#/$defs/City"}, "days": {"type": "integer"}, "unit": {"enum": ["C", "F"]}},
        "required": ["days"],
        "additionalProperties": False,
        "$defs": {"City": {"type": "string"}},
    },
)
NOW = Tool("now")
GOOD = {
    "hermes": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich", "days": 3}}\n</tool_call>',
    "llama3": '{"name": "get_weather", "parameters": {"city": "Zürich", "days": 3}}',
    "mistral": '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Zürich", "days": 3}}]',
    "pythonic": '[get_weather(days=3, city="Zürich")]',
}
BAD = {form: text.replace("3", '"3"') for form, text in GOOD.items()}
TWO = {
    "hermes": GOOD["hermes"] + '\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
    "llama3": GOOD["llama3"] + '; {"name": "now", "parameters": {}}',
    "mistral": GOOD["mistral"].replace("}}]", '}}, {"name": "now", "arguments": {}}]'),
    "pythonic": GOOD["pythonic"].replace(")]", "), now()]"),
}
FORMS = list(TOOL_FORMS)


def no_special(_text: str) -> None:
    return None


def grammar_of(form: str, use: ToolUse, text: Grammar | None = None, *, thinking: bool = False) -> str:
    grammar = answer_grammar(text, use, TOOL_FORMS[form], no_special, thinking=thinking)
    assert grammar is not None
    assert grammar.kind == "ebnf"
    assert LLMatcher.validate_grammar(enforced(grammar.source), BYTES) == ""
    return grammar.source


def accepts(grammar: str, text: str) -> bool:
    matcher = LLMatcher(BYTES, enforced(grammar), log_level=0)
    token_ids = BYTES.tokenize_str(text)
    return bool(matcher.try_consume_tokens(token_ids) == len(token_ids) and matcher.is_accepting())


@pytest.mark.parametrize("form", FORMS)
def test_a_required_call_is_a_right_one(form: str) -> None:
    grammar = grammar_of(form, ToolUse(tools=[WEATHER, NOW], choice="required"))
    assert accepts(grammar, GOOD[form])
    assert accepts(grammar, TWO[form])
    assert not any(accepts(grammar, text) for text in ("", "Hello", BAD[form], GOOD[form].replace("get_weather", "rain")))
    single = grammar_of(form, ToolUse(tools=[WEATHER, NOW], choice="required", parallel=False))
    assert accepts(single, GOOD[form])
    assert not accepts(single, TWO[form])


@pytest.mark.parametrize("form", FORMS)
def test_strict_tools_are_called_right_or_not_at_all(form: str) -> None:
    strict = Tool("get_weather", parameters=WEATHER.parameters, strict=True)
    grammar = grammar_of(form, ToolUse(tools=[strict, NOW]))
    assert all(accepts(grammar, text) for text in ("", "Hello [1] {2} <b>", GOOD[form], TWO[form]))
    assert not accepts(grammar, BAD[form])
    one = grammar_of(form, ToolUse(tools=[WEATHER, NOW], parallel=False))
    assert accepts(one, GOOD[form])
    assert not accepts(one, TWO[form])


@pytest.mark.parametrize("form", FORMS)
def test_tools_that_are_shown_but_not_allowed_are_not_called(form: str) -> None:
    grammar = grammar_of(form, ToolUse(tools=[WEATHER], others=True))
    assert all(accepts(grammar, text) for text in ("Hello", GOOD[form]))
    assert not accepts(grammar, GOOD[form].replace("get_weather", "now"))
    assert not accepts(grammar, TWO[form])


@pytest.mark.parametrize("form", FORMS)
def test_what_is_forced_is_what_the_parser_reads(form: str) -> None:
    parser = ReplyParser(TOOL_FORMS[form], ["get_weather", "now"])
    pieces = parser.push(TWO[form]) + parser.finish()
    assert [piece.name for piece in pieces if isinstance(piece, ToolCallStart)] == ["get_weather", "now"]
    first = next(piece.text for piece in pieces if isinstance(piece, ToolArguments))
    assert json.loads(first) == {"city": "Zürich", "days": 3}
    assert not any(isinstance(piece, TextPiece) for piece in pieces)


def test_tools_left_to_the_model_leave_it_free() -> None:
    assert answer_grammar(None, ToolUse(tools=[WEATHER]), TOOL_FORMS["hermes"], no_special, thinking=True) is None
    assert answer_grammar(None, ToolUse(), TOOL_FORMS["hermes"], no_special, thinking=True) is None
    constraint = Grammar("regex", "a+")
    forbidden = ToolUse(tools=[WEATHER], choice="none")
    assert answer_grammar(constraint, forbidden, TOOL_FORMS["hermes"], no_special, thinking=False) is constraint


CONSTRAINTS = [
    (Grammar("json_object"), '{"a": 1}', "[1]"),
    (Grammar("json_schema", '{"type": "array", "items": {"type": "integer"}}'), "[1, 2]", '["1"]'),
    (Grammar("regex", r"a/b\/c\d"), "a/b/c1", "a/b/c"),
    (Grammar("choice", '["yes", "no \\"way\\""]'), 'no "way"', "maybe"),
]


@pytest.mark.parametrize(("constraint", "good", "bad"), CONSTRAINTS)
def test_constraints_beside_tools_and_after_reasoning(constraint: Grammar, good: str, bad: str) -> None:
    beside = grammar_of("hermes", ToolUse(tools=[WEATHER]), constraint)
    assert accepts(beside, good)
    assert accepts(beside, GOOD["hermes"])
    assert not accepts(beside, bad)
    assert not accepts(beside, good.replace(" ", "  ") if " " in good else good + " ")
    after = grammar_of("hermes", ToolUse(), constraint, thinking=True)
    assert accepts(after, f"Well, {bad}?\n</think>\n\n{good}")
    assert accepts(after, f"</think>{good}")
    assert not accepts(after, f"Well?</think>{bad}")
    assert not accepts(after, good)


def test_special_tokens_stand_for_their_markers() -> None:
    ids = {"<tool_call>": 1, "</tool_call>": 2, "[TOOL_CALLS]": 3, "[ARGS]": 4, "</think>": 5}
    for form, marks in (("hermes", ["<[1]>", "<[2]>"]), ("mistral", ["<[3]>", "<[4]>"])):
        grammar = answer_grammar(None, ToolUse(tools=[NOW], choice="required"), TOOL_FORMS[form], ids.get, thinking=True)
        assert grammar is not None
        assert all(mark in grammar.source for mark in [*marks, "<[5]>"])
        assert not any(text in grammar.source for text in ids)


def test_what_cant_be_joined_or_enforced_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="ebnf can't be joined"):
        grammar_of("hermes", ToolUse(tools=[NOW]), Grammar("ebnf", "start: /a/"))
    either = Tool("f", parameters={"type": "object", "anyOf": [{"required": ["a"]}]})
    with pytest.raises(InvalidRequestError, match="'anyOf'"):
        grammar_of("pythonic", ToolUse(tools=[either], choice="required"))
    with pytest.raises(InvalidRequestError, match="must be a name"):
        grammar_of("pythonic", ToolUse(tools=[Tool("f", parameters={"properties": {"a b": {}}})], choice="required"))


def test_python_keywords_may_be_left_out_when_they_are_optional() -> None:
    free = Tool("f", parameters={"type": "object", "properties": {"a": {"enum": [1]}, "b": {"enum": [2]}}})
    grammar = grammar_of("pythonic", ToolUse(tools=[free], choice="required"))
    assert all(accepts(grammar, text) for text in ("[f()]", "[f(a=1)]", "[f(b=2)]", "[f(a=1, b=2)]"))
    assert not any(accepts(grammar, text) for text in ("[f(a=1,)]", "[f(a=2)]", "[f(, b=2)]"))
