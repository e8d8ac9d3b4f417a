"""`radixserve explain`: the place and the kind of the first difference, for the mistakes that break prefixes in practice."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from radixserve.cli import main
from radixserve.cli.explain import _read, compare
from radixserve.text.dialect import Dialect
from radixserve.text.tokenizer import Tokenizer

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
    for name in ("weather", "clock")
]
BODY: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "You are helpful. It is 2026-11-30 10:27:45 now. Session 81723."},
        {"role": "user", "content": "What is the weather in Rome?"},
    ]
}


@pytest.fixture
def tokenizer(tiny_model_dir: Path) -> Tokenizer:
    return Dialect.of(Tokenizer.load(tiny_model_dir)).tokenizer


def changed(old: str, new: str) -> dict[str, Any]:
    return json.loads(json.dumps(BODY).replace(old, new))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("other", "cause", "path", "at"),
    [
        (changed("10:27:45", "10:31:02"), "time", "messages[0].content", 37),
        (changed("81723", "81790"), "number", "messages[0].content", 59),
        (changed("helpful. It", "helpful.  It"), "whitespace", "messages[0].content", 17),
        (changed("Rome", "Paris"), "text", "messages[1].content", 23),
        (BODY | {"add_generation_prompt": False}, None, None, None),
    ],
)
def test_the_first_difference_is_named(tokenizer: Tokenizer, other: Any, cause: Any, path: Any, at: Any) -> None:
    found = compare(BODY, other, tokenizer)
    assert (found.cause, found.place and found.place.path, found.place and found.place.at) == (cause, path, at)
    assert found.breaks == (cause is not None)


@pytest.mark.parametrize(
    ("name", "text", "is_text"),
    [
        ("a.json", '{"prompt": "x"', False),
        ("a.json", "plain", False),
        ("a.json", "", False),
        ("a", ' {"prompt": }', False),
        ("a", "[" * 100_000, True),
        ("a.json", "[" * 100_000, False),
        ("a.txt", "{name} asks", True),
        ("a", "plain", True),
    ],
)
def test_malformed_json_is_refused_and_not_compared_as_a_text(
    tiny_model_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, is_text: bool
) -> None:
    path = tmp_path / name
    path.write_text(text)
    if is_text:
        assert _read(path) == {"prompt": text}
        return
    with pytest.raises(SystemExit) as ended:
        main(["explain", str(path), str(path), "--model", str(tiny_model_dir)])
    assert ended.value.code == 1
    said = capsys.readouterr()
    assert "is not JSON" in said.err
    assert str(path) in said.err.replace("\n", "")


def test_tools_in_another_order_and_objects_with_other_keys_first(tokenizer: Tokenizer) -> None:
    body = BODY | {"tools": TOOLS}
    assert compare(body, BODY | {"tools": TOOLS[::-1]}, tokenizer).cause == "tools_order"
    other = copy.deepcopy(body)
    parameters = other["tools"][0]["function"]["parameters"]
    other["tools"][0]["function"]["parameters"] = dict(reversed(parameters.items()))
    assert compare(body, other, tokenizer).cause == "key_order"


def test_what_the_break_shows_is_named_before_what_comes_later(tokenizer: Tokenizer) -> None:
    other = changed("Rome", "Paris")
    other["messages"][0]["content"] += " Be brief."
    found = compare(BODY, other, tokenizer)
    assert found.place is not None
    assert found.place.path == "messages[0].content"
    assert found.after[1].startswith(" Be brief.")


def test_another_salt_shares_nothing(tokenizer: Tokenizer) -> None:
    found = compare(BODY, BODY | {"cache_salt": "a"}, tokenizer)
    assert (found.cause, found.same_namespace, found.breaks) == (None, False, True)


def write(path: Path, body: Any) -> str:
    path.write_text(body if isinstance(body, str) else json.dumps(body))
    return str(path)


def test_it_prints_where_the_prefix_breaks(tmp_path: Path, tiny_model_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [write(tmp_path / "a.txt", "One text that ends here."), write(tmp_path / "b.txt", "One text that goes on.")]
    with pytest.raises(SystemExit, match="3"):
        main(["explain", *names, "--model", str(tiny_model_dir)])
    printed = capsys.readouterr().out
    assert "Your prefix breaks here, at token" in printed
    assert "in prompt, character 14: the text" in printed
    assert "…One text that ends here.…" in printed


def test_a_prefix_is_exit_code_0(tmp_path: Path, tiny_model_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [write(tmp_path / "a.json", {"prompt": [1, 2, 3]}), write(tmp_path / "b.json", {"prompt": [1, 2, 3, 4]})]
    with pytest.raises(SystemExit, match="0"):
        main(["explain", *names, "--model", str(tiny_model_dir), "--json"])
    assert json.loads(capsys.readouterr().out)["shared"] == 3


def test_what_is_no_request_is_one_line_and_exit_1(
    tmp_path: Path, tiny_model_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [write(tmp_path / "a.json", {"messages": 3}), str(tmp_path / "missing.json")]
    with pytest.raises(SystemExit, match="1"):
        main(["explain", names[0], names[0], "--model", str(tiny_model_dir)])
    with pytest.raises(SystemExit, match="1"):
        main(["explain", *names, "--model", str(tiny_model_dir)])
    errors = capsys.readouterr().err.splitlines()
    assert "no chat request" in errors[0]
    assert "can't read" in errors[1]
