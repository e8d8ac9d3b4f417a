"""The documentation says what the code does: settings, links, commands."""

import re
from pathlib import Path

import pytest

from docs.generate import configuration, json_schema, python_api
from radixserve.cli import app

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
SHELL = re.compile(r"^```(?:sh|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def shell_lines(page: Path) -> list[str]:
    return [line.strip() for text in SHELL.findall(page.read_text()) for line in text.splitlines()]


def test_configuration_is_what_the_code_makes() -> None:
    assert (ROOT / "docs/configuration.md").read_text() == configuration(), "run `make docs`"


def test_the_python_api_is_what_the_docstrings_say() -> None:
    assert (ROOT / "docs/python-api.md").read_text() == python_api(), "run `make docs`"


def test_json_schema_coverage_is_what_the_backends_do() -> None:
    assert (ROOT / "docs/json-schema.md").read_text() == json_schema(), "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = [
        target
        for target in LINK.findall(page.read_text())
        if "://" not in target and not target.startswith("#") and not (page.parent / target.partition("#")[0]).exists()
    ]
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.MULTILINE)
    assert set(named) <= targets


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_exist(page: Path) -> None:
    commands = [line.split()[1:3] for line in shell_lines(page) if line.startswith("radixserve ")]
    for command, *_ in commands:
        assert command in app, f"radixserve {command}"


def test_every_page_is_in_the_table_of_contents() -> None:
    for contents, folder in (("docs", "."), ("docs", "api"), ("docs/design", ".")):
        listed = {(ROOT / contents / link).resolve() for link in LINK.findall((ROOT / contents / "README.md").read_text())}
        pages = {page.resolve() for page in (ROOT / contents / folder).glob("*.md") if page.name != "README.md"}
        assert pages <= listed


def test_readme_starts_with_two_commands() -> None:
    lines = shell_lines(ROOT / "README.md")
    assert "make serve" in lines
    assert "make test" in lines
