"""One grammar for a whole answer: what a client asks of its text, the tool calls it may or must hold, and reasoning before it.

A constraint that stands alone goes to the engine as it is. Where it is to be joined with tool calls or reasoning, both are rules
of one Lark grammar.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from radixserve.errors import InvalidRequestError
from radixserve.sampling_params import Grammar
from radixserve.text.grammar_sources import read_schema
from radixserve.text.reply_parser import END_THINK
from radixserve.text.tools.form import ToolForm
from radixserve.text.tools.lark import ANY_OBJECT, TokenId, json_text, literal, up_to_marker
from radixserve.text.tools.tool import Tool

Choice = Literal["auto", "none", "required"]


@dataclass(frozen=True, kw_only=True)
class ToolUse:
    """`choice`: whether calls are up to the model, forbidden or required; `tools`: those that may be called."""

    tools: Sequence[Tool] = ()
    choice: Choice = "auto"
    parallel: bool = True
    others: bool = False
    """Whether the prompt shows tools that may not be called."""

    @property
    def allowed(self) -> bool:
        """Whether the answer may hold calls."""
        return bool(self.tools) and self.choice != "none"


def answer_grammar(text: Grammar | None, use: ToolUse, form: ToolForm, token_id: TokenId, *, thinking: bool) -> Grammar | None:
    """What the engine holds an answer to; None when it is free.

    `text` constrains an answer that is no call. `thinking`: the prompt ends inside reasoning, which is free. Raises
    InvalidRequestError when the parts can't be joined.
    """
    rules = ""
    if use.allowed:
        rules = _tool_rules(text, use, form, token_id)
    if not rules:
        if text is None or not thinking:
            return text
        rules = f"answer: {_text_rule(text)}\n"
    if thinking:
        return Grammar("ebnf", f"start: reasoning answer\n{rules}" + _reasoning_rules(token_id))
    return Grammar("ebnf", f"start: answer\n{rules}")


def _tool_rules(text: Grammar | None, use: ToolUse, form: ToolForm, token_id: TokenId) -> str:
    """Rules that define `answer`; empty when it is free."""
    forced = use.choice == "required"
    free = use.parallel and not use.others and not any(tool.strict for tool in use.tools)
    if free and not forced and text is None:
        return ""
    answer = "calls" if forced else "reply" if text is None else f"calls | {_text_rule(text)}"
    return f"answer: {answer}\n" + form.rules(use.tools, token_id, parallel=use.parallel, strict_only=not forced)


def _reasoning_rules(token_id: TokenId) -> str:
    return up_to_marker("thought", END_THINK, token_id) + "reasoning: thought /[\\n ]{0,2}/\n"


def _text_rule(text: Grammar) -> str:
    """The right side of a rule for a constraint of the text."""
    match text.kind:
        case "json_object":
            return json_text(ANY_OBJECT, "the json_object")
        case "json_schema":
            return json_text(read_schema(text.source), "the json_schema")
        case "regex":
            return "/" + text.source.replace("\\/", "/").replace("/", "\\/").replace("\n", "\\n") + "/"
        case "choice":
            return " | ".join(map(literal, json.loads(text.source)))
    raise InvalidRequestError(
        f"a constraint of kind {text.kind} can't be joined with tools or reasoning: use a JSON Schema, a regular expression or a "
        "choice, or leave tools and reasoning out",
        param="grammar",
    )
