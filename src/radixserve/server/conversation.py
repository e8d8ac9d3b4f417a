"""A chat to be answered, whatever API it came by: from messages, tools and constraints to what the engine is asked.

The routes read their own wire forms into a `Conversation` and word what `Turn.parser` finds in the answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from radixserve.errors import InvalidRequestError, ParamError
from radixserve.sampling_params import Grammar
from radixserve.server.service import Service
from radixserve.text.answer_check import AnswerCheck, text_check
from radixserve.text.answer_grammar import ToolUse, answer_grammar
from radixserve.text.dialect import Dialect
from radixserve.text.reply_parser import ReplyParser
from radixserve.text.schemas.schema_check import SchemaCheck
from radixserve.text.tokenizer import Tokenizer
from radixserve.text.tools.lark import enforced_parameters, parameters_of
from radixserve.text.tools.tool import Tool


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """`messages` are in OpenAI's form. All `tools` are shown to the model, whatever use it may make of them."""

    messages: list[dict[str, Any]]
    tools: Sequence[Tool] = ()
    use: ToolUse = field(default_factory=ToolUse)
    constraint: Grammar | None = None
    """Of an answer that is no tool call."""
    separate_reasoning: bool = True
    """False: reasoning is a part of the answer's text."""
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    template_kwargs: dict[str, Any] = field(default_factory=dict)

    def encode(self, tokenizer: Tokenizer, check: Callable[[int], None] | None = None) -> np.ndarray:
        """The prompt's token ids, int32 [prompt_len]. `check`: see `Tokenizer.encode_chat`."""
        return tokenizer.encode_chat(
            self.messages,
            tools=[tool.openai() for tool in self.tools],
            add_generation_prompt=self.add_generation_prompt,
            continue_final_message=self.continue_final_message,
            template_kwargs=self.template_kwargs,
            check=check,
        )


@dataclass(frozen=True)
class Turn:
    """What to ask the engine for. `prompt_ids`: int32 [prompt_len]."""

    prompt_ids: np.ndarray
    grammar: Grammar | None
    check: AnswerCheck | None
    """Of the answer, where `grammar` is made of schemas."""
    skip_special_tokens: bool
    """False where markers of calls or reasoning are special tokens."""
    _dialect: Dialect
    _tool_names: list[str]
    _reasoning: bool
    _thinking: bool

    def parser(self) -> ReplyParser:
        """Takes one choice's answer apart."""
        return self._dialect.parser(self._tool_names, reasoning=self._reasoning, thinking=self._thinking)


def prepare(this: Conversation, service: Service) -> Turn:
    """Templated and tokenized; call it off the event loop. Raises InvalidRequestError for what can't be said or enforced."""
    if not this.messages:
        raise ParamError("messages", "is empty: send at least one message")
    service.check_text(_num_chars(this.messages), "messages")
    prompt_ids = this.encode(service.tokenizer, lambda num_chars: service.check_text(num_chars, "messages"))
    dialect = service.dialect
    thinking = dialect.thinks(prompt_ids)
    reasoning = dialect.reasoning and this.separate_reasoning
    try:
        grammar = answer_grammar(this.constraint, this.use, dialect.form, dialect.tokenizer.special_id, thinking=thinking)
    except RecursionError:
        raise InvalidRequestError("the schema is nested too deeply: flatten it", param="grammar") from None
    check = _check(this, dialect, thinking) if grammar is not None else None
    names = [tool.name for tool in this.use.tools] if this.use.allowed else []
    shows_special = (dialect.needs_special_tokens and bool(names)) or (reasoning and dialect.reasoning_is_special)
    return Turn(prompt_ids, grammar, check, not shows_special, dialect, names, reasoning, thinking)


def _check(this: Conversation, dialect: Dialect, thinking: bool) -> AnswerCheck | None:
    """Of an answer that is held to a grammar; None when there is no schema in it."""
    arguments: dict[str, SchemaCheck] = {}
    if this.use.allowed:
        strict_only = this.use.choice != "required"
        arguments = {tool.name: SchemaCheck(enforced_parameters(tool, strict_only), parameters_of(tool)) for tool in this.use.tools}
    text = text_check(this.constraint)
    if text is None and not arguments:
        return None
    return AnswerCheck(text, arguments, lambda: dialect.parser(list(arguments), reasoning=dialect.reasoning, thinking=thinking))


def _num_chars(messages: list[dict[str, Any]]) -> int:
    """At least so many characters are in the prompt."""
    contents = [message.get("content") for message in messages]
    parts = [part.get("text") for content in contents if isinstance(content, list) for part in content if isinstance(part, dict)]
    return sum(len(text) for text in [*contents, *parts] if isinstance(text, str))
