"""Which form of calls and reasoning a model has, read off its chat template or set."""

from pathlib import Path

import numpy as np
import pytest

from radixserve.errors import ConfigError
from radixserve.text.dialect import Dialect
from radixserve.text.tokenizer import Tokenizer
from tests.unit.text.vocabularies import byte_level, write_directory

PLAIN = "{% for message in messages %}{{ message.content }}{% endfor %}"
QWEN = PLAIN + "{% if tools %}<tool_call>{% endif %}{% if tool_calls %}{% endif %}<think>\n</think>"


def tokenizer(path: Path, template: str) -> Tokenizer:
    return Tokenizer.load(write_directory(path, byte_level(), chat_template=template))


def test_the_template_decides(tmp_path: Path) -> None:
    plain = Dialect.of(tokenizer(tmp_path / "plain", PLAIN))
    assert (plain.form.name, plain.reasoning) == ("hermes", False)
    qwen = Dialect.of(tokenizer(tmp_path / "qwen", QWEN))
    assert (qwen.form.name, qwen.reasoning) == ("hermes", True)
    mistral = Dialect.of(tokenizer(tmp_path / "mistral", PLAIN + "{{ tools }}[TOOL_CALLS]"))
    assert (mistral.form.name, mistral.reasoning) == ("mistral", False)


def test_settings_come_first(tmp_path: Path) -> None:
    dialect = Dialect.of(tokenizer(tmp_path, QWEN), "pythonic", "none")
    assert (dialect.form.name, dialect.reasoning) == ("pythonic", False)


def test_a_form_that_the_model_would_not_be_taught_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--tool-parser is llama3"):
        Dialect.of(tokenizer(tmp_path, PLAIN), "llama3")


@pytest.mark.parametrize(
    ("prompt", "thinks"),
    [("Hi<think>\n", True), ("Hi<think>", True), ("<think>\n\n</think>\n", False), ("<think> Hi", False), ("", False)],
)
def test_prompts_that_end_inside_reasoning_are_noticed(tmp_path: Path, prompt: str, thinks: bool) -> None:
    this = tokenizer(tmp_path, QWEN)
    ids = this.encode(prompt) if prompt else np.array([], dtype=np.int32)
    assert Dialect.of(this).thinks(ids) is thinks
    assert not Dialect.of(this, reasoning_parser="none").thinks(ids)
