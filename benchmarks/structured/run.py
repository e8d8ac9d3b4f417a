"""`python -m benchmarks.structured`: JSON records under a schema, with and without the cache and jump-forward.

Four engines are built in turn from the same settings but for these two, and get the same requests at once, `--concurrency` of which
run together. Every answer is checked against the schema.
"""

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.structured.workload import SCHEMA, conversation, make_notes
from radixserve.bench import report
from radixserve.bench.model_options import ModelOptions
from radixserve.config import check_at_least, check_can_write
from radixserve.errors import ConfigError
from radixserve.llm import LLM
from radixserve.sampling_params import Grammar, SamplingParams


@dataclass(frozen=True, kw_only=True)
class StructuredBenchOptions(ModelOptions):
    """What to run, and on what."""

    num_requests: int = 32
    """Records to make, with each of the four engines."""

    num_examples: int = 10
    """Worked examples in the prompt that all requests share."""

    max_tokens: int = 200
    """Longest answer; by default more than any record needs, whose strings are bounded."""

    concurrency: int = 8
    """Requests that run at once."""

    temperature: float = 0.0
    """Of all requests; 0 is greedy, and lets the answers of the four runs be compared."""

    json: bool = False
    """Print one JSON object instead of the table."""

    output_file: Path | None = None
    """Write the JSON here too."""


@dataclass(frozen=True)
class StructuredRun:
    """One engine's run; sizes in tokens, rates a second."""

    prefix_cache: bool
    jump_forward: bool
    duration_s: float
    requests_per_s: float
    output_tokens_per_s: float
    steps: int
    prompt_tokens: int
    cached_tokens: int
    computed_tokens: int
    generated_tokens: int
    forced_tokens: int
    valid: int
    """Answers that are whole and that the schema allows."""
    right: int
    """Answers that say what their note says."""
    texts: tuple[str, ...]


def run(options: StructuredBenchOptions) -> int:
    """Runs the four and prints what came of it. Exit code 0, or 1 if an answer is not valid. Raises ConfigError."""
    for name in ("num_requests", "num_examples", "concurrency"):
        check_at_least(name, getattr(options, name), 1)
    check_can_write("output_file", options.output_file)
    validator = _validator()
    console = Console(stderr=True)
    runs = []
    for prefix_cache, jump_forward in ((False, False), (False, True), (True, False), (True, True)):
        with console.status(f"cache {_on(prefix_cache)}, jump-forward {_on(jump_forward)}"):
            runs.append(_measure(options, validator, prefix_cache=prefix_cache, jump_forward=jump_forward))
    _publish(options, runs)
    if invalid := sum(options.num_requests - one.valid for one in runs):
        print(f"{invalid} answers are not valid: this must not be", file=sys.stderr)
        return 1
    return 0


def _validator() -> Any:
    try:
        import jsonschema
    except ModuleNotFoundError as error:
        raise ConfigError("answers are checked with jsonschema, which is not installed: pip install jsonschema") from error
    return jsonschema.Draft202012Validator(SCHEMA)


def _measure(options: StructuredBenchOptions, validator: Any, *, prefix_cache: bool, jump_forward: bool) -> StructuredRun:
    """Has a new engine answer one note that isn't measured, by which the grammar is compiled, and all others from an empty tree."""
    llm = _engine(options, prefix_cache=prefix_cache, jump_forward=jump_forward)
    grammar = Grammar("json_schema", json.dumps(SCHEMA))
    params = SamplingParams(temperature=options.temperature, max_tokens=options.max_tokens, grammar=grammar, seed=0)
    examples, notes = make_notes(options.num_examples, seed=1), make_notes(options.num_requests, seed=0)
    llm.chat(conversation(make_notes(1, seed=2)[0], examples), params)
    llm.flush()
    chats = [conversation(note, examples) for note in notes]
    before, begin = llm.engine.stats(), time.perf_counter()
    generations = llm.chat(chats, params, progress=False)
    duration_s = time.perf_counter() - begin
    after = llm.engine.stats()
    texts = tuple(generation.text for generation in generations)
    values = [_read(text) for text in texts]
    generated_tokens = after.generated_tokens - before.generated_tokens
    return StructuredRun(
        prefix_cache=prefix_cache,
        jump_forward=jump_forward,
        duration_s=duration_s,
        requests_per_s=len(notes) / duration_s,
        output_tokens_per_s=generated_tokens / duration_s,
        steps=after.num_steps - before.num_steps,
        prompt_tokens=after.prompt_tokens - before.prompt_tokens,
        cached_tokens=after.cached_tokens - before.cached_tokens,
        computed_tokens=after.computed_tokens - before.computed_tokens,
        generated_tokens=generated_tokens,
        forced_tokens=after.forced_tokens - before.forced_tokens,
        valid=sum(validator.is_valid(value) for value in values),
        right=sum(value == note.record for value, note in zip(values, notes, strict=True)),
        texts=texts,
    )


def _engine(options: StructuredBenchOptions, *, prefix_cache: bool, jump_forward: bool) -> LLM:
    config = options.engine_config(
        max_running=options.concurrency,
        prefix_cache=prefix_cache,
        jump_forward=jump_forward,
    )
    return LLM(**asdict(config))


def _read(text: str) -> Any:
    """The value of a JSON text; None, which the schema does not allow, of any other text."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _publish(options: StructuredBenchOptions, runs: list[StructuredRun]) -> None:
    """Prints and writes the results; each run beside the first, which had neither."""
    rows = [
        {name: value for name, value in asdict(one).items() if name != "texts"}
        | {
            "speed_up": runs[0].duration_s / one.duration_s,
            "equal": sum(text == other for text, other in zip(one.texts, runs[0].texts, strict=True)),
        }
        for one in runs
    ]
    result = {
        "benchmark": "structured",
        "options": report.settings(options),
        "runs": rows,
        **report.environment(sys.argv),
    }
    report.publish(result, options, [_table(options, rows)])


def _table(options: StructuredBenchOptions, rows: list[dict[str, Any]]) -> Table:
    title = f"{options.model}: {options.num_requests} records under one schema, {options.concurrency} at once"
    heads = ("cache", "jump-forward", "records/s", "faster", "steps", "prompt cached", "answer forced", "valid", "equal")
    table = Table(*heads, title=title, box=box.SIMPLE)
    for row in rows:
        table.add_row(
            _on(row["prefix_cache"]),
            _on(row["jump_forward"]),
            f"{row['requests_per_s']:.2f}",
            f"{row['speed_up']:.1f}x",
            f"{row['steps']}",
            f"{row['cached_tokens'] / row['prompt_tokens']:.0%}",
            f"{row['forced_tokens'] / row['generated_tokens']:.0%}",
            f"{row['valid']}/{options.num_requests}",
            f"{row['equal']}/{options.num_requests}",
        )
    return table


def _on(setting: bool) -> str:
    return "on" if setting else "off"
