"""Writes the parts of the documentation that are made from the code: `make docs`.

A test compares the files with what this module makes now, so that a new setting can't stay undocumented.
"""

import inspect
import json
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import docstring_parser

from radixserve import llm
from radixserve.config import EngineConfig, ReplicaConfig, ServerConfig
from radixserve.grammar import GrammarCompiler
from radixserve.sampling.grammar_llguidance import LLGuidance
from radixserve.sampling_params import Grammar, SamplingParams
from radixserve.text.tokenizer import Tokenizer
from tests.schema_cases import CASES, SchemaCase, enforced
from tests.tiny_models import EOS_ID, VOCAB_SIZE, make_tiny_model

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

## Replicas

For `radixserve serve`; see [replicas.md](replicas.md).

{replicas}

## Environment

| variable | meaning |
|---|---|
| `RADIXSERVE_API_KEY` | The API key of `radixserve serve` when `--api-key` is not given. |
| `RADIXSERVE_CACHE` | Folder of the built-in models; by default `radixserve` in `$XDG_CACHE_HOME`, else in `~/.cache`. |
| `OMP_WAIT_POLICY` | Set to `PASSIVE` unless you set it: threads of torch that spin while they wait slow shared cores down. |
| `HF_HOME`, `HF_TOKEN`, `HF_HUB_OFFLINE` | Read by huggingface_hub when a model has a hub name. |
"""

JSON_SCHEMA = """# JSON Schema coverage

Made by `make docs` from `tests/schema_cases.py`: change it there.

Draft 2020-12, keyword by keyword. *Enforced*: the tests find that answers the schema allows can be given, and that those it
forbids can't. *Refused*: a request with such a schema gets an error (HTTP 400) that names the keyword and its place. There is no
third: no keyword is ignored. What is no keyword of JSON Schema is an annotation and changes nothing, as the standard has it.

{table}

Two things narrow an answer more than its schema does: the properties of an object come in the order in which the schema
names them, those that it does not name last; and JSON is written in one form (see [structured-output.md](structured-output.md),
which also says what becomes of undeclared properties, large numbers, formats and patterns). Drafts before 2020-12 are read too.
"""

PYTHON_API = """# The Python API

Made by `make docs` from the docstrings: change them there. The engine of `radixserve serve`, in your own process:

```python
from radixserve import LLM, SamplingParams

llm = LLM("smollm2-135m")
answer = llm.generate("The capital of France is", SamplingParams(max_tokens=8, temperature=0))
print(answer.text, answer.cached_tokens)
```

Errors are subclasses of `radixserve.errors.RadixServeError`: `ConfigError` for a setting or a model that can't be had,
`InvalidRequestError` for a request that can't be served. More programs are in [examples](../examples).

{classes}
"""

PUBLIC = (llm.LLM, SamplingParams, Grammar, llm.Generation, llm.Choice, llm.Branch, llm.Options)
"""What `from radixserve import LLM` leads to."""

PLAIN_HEADS = ("boolean schemas", "recursive", "annotations")
"""Heads of rows, or words in them, that are no keywords."""


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
    if value == ():
        return "none"
    return ("on" if value else "off") if isinstance(value, bool) else f"`{value}`"


def json_schema() -> str:
    """The text of docs/json-schema.md: the compiler is asked for every case of the tests."""
    with TemporaryDirectory() as folder:
        tokenizer = Tokenizer.load(make_tiny_model(Path(folder) / "model"))
    compiler = LLGuidance(tokenizer, VOCAB_SIZE, frozenset({EOS_ID}))
    rows = ["| keyword | |", "|---|---|"]
    for keyword in dict.fromkeys(case.keyword for case in CASES):
        cases = [case for case in CASES if case.keyword == keyword]
        rows.append(f"| {_code(keyword)} | {_coverage(compiler, cases)} |")
    return JSON_SCHEMA.format(table="\n".join(rows))


def _code(keyword: str) -> str:
    """A row's head: keywords as code, words as they are."""
    return ", ".join(f"`{word}`" if word not in PLAIN_HEADS else word for word in keyword.split(", "))


def _coverage(compiler: GrammarCompiler, cases: list[SchemaCase]) -> str:
    refused = [case for case in cases if not enforced(compiler, case)]
    if not refused:
        return "enforced"
    if len(refused) == len(cases):
        return "refused"
    examples = "; ".join(f"`{json.dumps(case.schema)}`" for case in refused)
    return f"enforced, but for {examples}".replace("|", "\\|")


def configuration() -> str:
    """The text of docs/configuration.md."""
    return CONFIGURATION.format(
        engine=settings_table(EngineConfig), server=settings_table(ServerConfig), replicas=settings_table(ReplicaConfig)
    )


def python_api() -> str:
    """The text of docs/python-api.md."""
    parts = [_class(kind) for kind in PUBLIC] + [f"## `generate_all`\n\n{_member('generate_all', llm.generate_all)}"]
    return PYTHON_API.format(classes="\n\n".join(parts))


def _class(kind: type[Any]) -> str:
    """A class with its docstring, its fields, and its public methods and properties."""
    lines = [f"## `{kind.__name__}`", _paragraphs(kind)]
    if names := [name for name in getattr(kind, "__annotations__", {}) if not name.startswith("_")]:
        params = {} if issubclass(kind, dict) else inspect.signature(kind).parameters
        defaults = {name: param.default for name, param in params.items()}
        lines.append("Fields: " + ", ".join(f"`{name}{_given(defaults.get(name))}`" for name in names) + ".")
    for name, member in vars(kind).items():
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
            lines.append(_member(name, member))
    return "\n\n".join(lines)


def _member(name: str, member: Any) -> str:
    """A method with its signature, or a property, and what it says of itself."""
    if isinstance(member, property):
        return f"**`.{name}`**  \n{_paragraphs(member)}"
    signature = inspect.signature(member)
    params = [param.replace(annotation=param.empty) for key, param in signature.parameters.items() if key != "self"]
    shown = signature.replace(parameters=params, return_annotation=signature.empty)
    return f"**`{name}{shown}`**  \n{_paragraphs(member)}"


def _given(default: Any) -> str:
    """A field's default, where it is a plain value that is worth showing."""
    return f" = {default!r}" if isinstance(default, bool | int | float | str) else ""


def _paragraphs(thing: Any) -> str:
    text = inspect.getdoc(thing) or ""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


if __name__ == "__main__":
    (DOCS / "configuration.md").write_text(configuration())
    (DOCS / "json-schema.md").write_text(json_schema())
    (DOCS / "python-api.md").write_text(python_api())
