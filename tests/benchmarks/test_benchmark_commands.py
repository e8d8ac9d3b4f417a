"""The command lines of the benchmarks: each explains itself, and a setting that can't be used ends with one line."""

from importlib import import_module

import pytest

from benchmarks.command import main

COMMANDS = {
    "adapters": "benchmarks.adapters",
    "compare": "benchmarks.compare.__main__",
    "load": "benchmarks.load.__main__",
    "structured": "benchmarks.structured.__main__",
    "tree": "benchmarks.tree",
}


def run(name: str, *args: str) -> object:
    """The exit code of `python -m benchmarks.NAME ARGS`."""
    app = import_module(COMMANDS[name]).app
    with pytest.raises(SystemExit) as exit_:
        main(app, args)
    return exit_.value.code


@pytest.mark.parametrize("name", COMMANDS)
def test_help_explains_and_gives_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert not run(name, "--help")
    assert capsys.readouterr().out.count(f"python -m benchmarks.{name}") >= 2  # in the usage line and in an example


def test_a_setting_that_cannot_be_used_ends_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tree", "--mooncake", "/nowhere.jsonl") == 1
    assert capsys.readouterr().err == "benchmarks: --mooncake /nowhere.jsonl is not a file\n"
