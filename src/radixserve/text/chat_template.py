"""Chat templates: Jinja sources that come with models, rendered in a sandbox that is set up as transformers sets up its own.

A template is foreign code. It can't change its inputs or reach outside them, and whatever goes wrong in it becomes an
InvalidRequestError, since templates also raise on purpose when they don't accept a conversation.
"""

import json
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from radixserve.errors import InvalidRequestError, ModelError
from radixserve.text.surrogates import escape_surrogates, join_surrogates

_END = "\ufdd1"
"""Marks the end of the final message while a template runs; a noncharacter of Unicode, which texts don't hold."""


class ChatTemplate:
    """One template of a model."""

    def __init__(self, source: str, special_tokens: dict[str, str]) -> None:
        """`special_tokens`: texts by role, such as {"bos_token": "<s>"}. Raises ModelError if the source is no valid template."""
        self._special_tokens = special_tokens
        self.source = source
        environment = _environment()
        try:
            self._template = environment.from_string(source)
            self.knows_tools = "tools" in meta.find_undeclared_variables(environment.parse(source))
            """Whether it shows the model what tools there are."""
            self.knows_calls = "tool_calls" in source
            """Whether it shows calls of earlier turns, and their results."""
            self.knows_developer = "developer" in source
            """Whether it has a role of that name beside system."""
        except jinja2.TemplateError as error:
            raise ModelError(f"the model's chat template is not valid: {error}; give the model another one") from error

    def render(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_kwargs: dict[str, Any] | None = None,
    ) -> str:
        """Renders a chat, as normalized by `normalize_messages`.

        `continue_final_message` ends the text with the last message's content, for the model to go on with. Raises
        InvalidRequestError, with param "messages", if the template rejects the chat or fails.
        """
        if continue_final_message:
            add_generation_prompt = False
            # The space shows whether the template trims content: then the text before it has to be trimmed as well.
            messages = [*messages[:-1], messages[-1] | {"content": messages[-1]["content"] + _END + " "}]
        variables = {
            **self._special_tokens,
            **(template_kwargs or {}),
            "messages": messages,
            "tools": tools,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            text = join_surrogates(self._template.render({"documents": None} | variables))
        except Exception as error:  # a template can raise anything
            reason = str(error)[:300] or type(error).__name__
            raise InvalidRequestError(f"the chat template does not accept these messages: {reason}", param="messages") from error
        return _cut_at_end(text) if continue_final_message else text


def _cut_at_end(text: str) -> str:
    before, found, after = text.rpartition(_END)
    if not found:
        raise InvalidRequestError(
            "the chat template leaves the final message out, so that it can't be continued: end with a message it shows",
            param="messages",
        )
    return before if after.startswith(" ") else before.rstrip()


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _strftime_now
    return environment


class _Generation(Extension):
    """{% generation %} … {% endgeneration %} marks an assistant's words for training; here it only stands for its body."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own tojson escapes HTML and sorts keys, which models were not trained on."""
    text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    return escape_surrogates(text)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
