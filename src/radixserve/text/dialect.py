"""How a model writes what is no plain text: tool calls, and what it thinks before it answers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from radixserve.errors import ConfigError
from radixserve.text.reply_parser import END_THINK, THINK, ReplyParser
from radixserve.text.tokenizer import Tokenizer
from radixserve.text.tools.form import ToolForm
from radixserve.text.tools.forms import TOOL_FORMS, find_tool_form

_LAST_TOKENS = 16
"""In which an opening <think> and the white space after it are looked for."""


@dataclass(frozen=True)
class Dialect:
    """`reasoning`: whether an answer may begin with reasoning."""

    tokenizer: Tokenizer
    form: ToolForm
    reasoning: bool

    @classmethod
    def of(cls, tokenizer: Tokenizer, tool_parser: str = "auto", reasoning_parser: str = "auto") -> "Dialect":
        """What the settings say, or for "auto" the chat template.

        Raises ConfigError for a form that the model would not be taught.
        """
        template = tokenizer.template_for_tools
        source = template.source if template else ""
        form = find_tool_form(source) if tool_parser == "auto" else TOOL_FORMS[tool_parser]
        if form.name != "hermes" and template and not template.knows_tools:
            raise ConfigError(
                f"--tool-parser is {form.name}, but the model's chat template knows no tools, so that it is taught the form of "
                "hermes: use auto or hermes, or give the model another template"
            )
        thinks = THINK in source or END_THINK in source
        return cls(tokenizer, form, thinks if reasoning_parser == "auto" else reasoning_parser == "think")

    @property
    def needs_special_tokens(self) -> bool:
        """Whether markers of calls are special tokens, which must then have text in an answer."""
        return any(self.tokenizer.special_id(marker) is not None for marker in self.form.markers)

    @property
    def reasoning_is_special(self) -> bool:
        """Whether the markers of reasoning are special tokens."""
        return self.reasoning and self.tokenizer.special_id(END_THINK) is not None

    def thinks(self, prompt_ids: np.ndarray) -> bool:
        """Whether the prompt (int32 [n]) ends inside reasoning: some templates open it."""
        tail = self.tokenizer.decode(prompt_ids[-_LAST_TOKENS:], skip_special_tokens=False)
        return self.reasoning and tail.rstrip().endswith(THINK)

    def parser(self, tool_names: Sequence[str], *, reasoning: bool, thinking: bool) -> ReplyParser:
        """A parser of one answer. `tool_names`: empty when calls are not looked for; `thinking`: as `thinks` said."""
        return ReplyParser(self.form if tool_names else None, tool_names, reasoning=reasoning, thinking=thinking)
