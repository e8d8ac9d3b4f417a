"""Writes the parts of the documentation that are made from the code: `make docs`.

A test compares the files with what this module makes now, so that a new setting can't stay undocumented.
"""

from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import docstring_parser

from radixserve.config import EngineConfig, ServerConfig

DOCS = Path(__file__).parent

CONFIGURATION = """# Configuration

Made by `make docs` from `src/radixserve/config.py`: change it there.

Each setting is a flag of the commands, and each engine setting is also an argument of `radixserve.LLM`:
`--num-slots 4096` on the command line is `LLM(num_slots=4096)` in Python. A flag that is on or off is switched off by
`--no-NAME`. Where the default is "unset", the last column says what happens; what was decided is printed at start.

## Engine

For `radixserve serve`, `chat`, `generate`, and for `LLM`.

{engine}

## Server

For `radixserve serve`.

{server}

## Environment

| variable | meaning |
|---|---|
| `RADIXSERVE_API_KEY` | The API key of `radixserve serve` when `--api-key` is not given. |
| `RADIXSERVE_CACHE` | Folder of the built-in models; by default `radixserve` in `$XDG_CACHE_HOME`, else in `~/.cache`. |
| `OMP_WAIT_POLICY` | Set to `PASSIVE` unless you set it: threads that spin while they wait slow shared cores down. |
| `HF_HOME`, `HF_TOKEN`, `HF_HUB_OFFLINE` | Read by huggingface_hub when a model has a hub name. |
"""


def settings_table(config: type[Any]) -> str:
    """One row a field: flag, values, default, meaning."""
    described = {param.arg_name: param.description or "" for param in docstring_parser.parse_from_object(config).params}
    rows = ["| flag | value | default | meaning |", "|---|---|---|---|"]
    for field in fields(config):
        flag = "--" + field.name.replace("_", "-")
        meaning = " ".join(described[field.name].split()).replace("|", "\\|")
        rows.append(f"| `{flag}` | {_values(field.type)} | {_default(field.default)} | {meaning} |")
    return "\n".join(rows)


def _values(kind: Any) -> str:
    if choices := [choice for choice in get_args(kind) if isinstance(choice, str)]:
        return ", ".join(f"`{choice}`" for choice in choices)
    kinds = [kind, *get_args(kind)]
    names = {bool: "on or off", int: "whole number", float: "number", str: "text"}
    return next(names[kind] for kind in kinds if kind in names)


def _default(value: Any) -> str:
    if value is None:
        return "unset"
    return ("on" if value else "off") if isinstance(value, bool) else f"`{value}`"


def configuration() -> str:
    """The text of docs/configuration.md."""
    return CONFIGURATION.format(engine=settings_table(EngineConfig), server=settings_table(ServerConfig))


if __name__ == "__main__":
    (DOCS / "configuration.md").write_text(configuration())
