"""`python -m benchmarks.adapters`: the base alone, then the same requests over 1, 4 and 16 adapters, in one engine.

Adapters are random, of all modules, and written as PEFT would save them. Requests run all at once: one pass computes their prompts
and samples a token, which is prefill; a second finds the prompts cached and decodes. Of several rounds the fastest counts.
"""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import torch
from cyclopts import Parameter
from rich import box
from rich.console import Console
from rich.table import Table
from safetensors.torch import save_file

from benchmarks.command import main, make_app
from radixserve.bench import report
from radixserve.bench.model_options import ModelOptions
from radixserve.config import check_at_least, check_can_write
from radixserve.errors import ConfigError
from radixserve.ipc import FlushRequest, GenerateRequest
from radixserve.llm import LLM
from radixserve.models.adapter_checkpoint import TARGETS
from radixserve.models.adapter_config import MAX_RANK
from radixserve.models.checkpoint import expected_shapes
from radixserve.models.config import ModelConfig
from radixserve.models.registry import resolve
from radixserve.models.source import load_config
from radixserve.sampling_params import SamplingParams
from radixserve.tokens import token_bytes

COUNTS = (0, 1, 4, 16)
"""Adapters that share the requests; 0: the base answers all."""


@dataclass(frozen=True, kw_only=True)
class AdapterBenchOptions(ModelOptions):
    """What to run, and on what."""

    rank: int = 16
    """Of every adapter."""

    num_requests: int = 16
    """Requests that run at once, shared out evenly among the adapters."""

    prompt_len: int = 128
    """Tokens of each prompt; no two share any."""

    output_len: int = 64
    """Tokens of each answer."""

    rounds: int = 3
    """Rounds of each number of adapters; the fastest counts."""

    json: bool = False
    """Print one JSON object instead of the table."""

    output_file: Path | None = None
    """Write the JSON here too."""


@dataclass(frozen=True)
class AdapterRun:
    """What one number of adapters came to. Rates are tokens a second, of all requests together."""

    num_adapters: int
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    decode_step_ms: float


def run(options: AdapterBenchOptions) -> int:
    """Measures and prints. Raises ConfigError for what makes no sense."""
    for name in ("num_requests", "prompt_len", "rounds"):
        check_at_least(name, getattr(options, name), 1)
    check_at_least("output_len", options.output_len, 2)
    check_can_write("output_file", options.output_file)
    if not 1 <= options.rank <= MAX_RANK:
        raise ConfigError(f"--rank is {options.rank}: must be between 1 and {MAX_RANK}")
    model = load_config(Path(resolve(options.model)))
    with TemporaryDirectory() as folder:
        adapters = {f"adapter-{i}": _write_adapter(Path(folder) / str(i), model, options.rank, i) for i in range(max(COUNTS))}
        config = options.engine_config(
            max_running=options.num_requests,
            num_slots=options.num_requests * (options.prompt_len + options.output_len),
            adapter=tuple(f"{name}={directory}" for name, directory in adapters.items()),
        )
        llm = LLM(**asdict(config))
    with Console(stderr=True).status("measuring"):
        runs = [_measure(llm, options, list(adapters)[:count]) for count in COUNTS]
    _publish(options, llm.engine.info.kernels, runs)
    return 0


def _write_adapter(directory: Path, model: ModelConfig, rank: int, seed: int) -> Path:
    """An adapter of small random weights for all modules."""
    directory.mkdir()
    generator = torch.Generator().manual_seed(seed)
    shapes = expected_shapes(model)
    tensors = {}
    for layer in range(model.num_layers):
        for place in TARGETS.values():
            outputs, inputs = shapes[f"model.layers.{layer}.{place}.weight"]
            name = f"base_model.model.model.layers.{layer}.{place}"
            tensors[f"{name}.lora_A.weight"] = torch.randn(rank, inputs, generator=generator) / inputs**0.5
            tensors[f"{name}.lora_B.weight"] = torch.randn(outputs, rank, generator=generator) * 0.01
    save_file(tensors, directory / "adapter_model.safetensors")
    (directory / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": rank}))
    return directory


def _measure(llm: LLM, options: AdapterBenchOptions, adapters: Sequence[str]) -> AdapterRun:
    num, prompt_len, decoded = options.num_requests, options.prompt_len, options.output_len - 1
    prefill_s, decode_s = [], []
    for _ in range(options.rounds):
        llm.engine.receive(FlushRequest("flush"))
        llm.engine.step()
        prefill_s.append(_answer(llm, options, adapters, 1))
        decode_s.append(_answer(llm, options, adapters, options.output_len))
    return AdapterRun(
        num_adapters=len(adapters),
        prefill_tokens_per_s=num * prompt_len / min(prefill_s),
        decode_tokens_per_s=num * decoded / min(decode_s),
        decode_step_ms=min(decode_s) / decoded * 1000,
    )


def _answer(llm: LLM, options: AdapterBenchOptions, adapters: Sequence[str], max_tokens: int) -> float:
    """Runs all requests; returns the seconds after their first token, or, when there is only one, those until it."""
    engine, vocab_size = llm.engine, llm.engine.info.limits.vocab_size
    params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    tokens = torch.randint(vocab_size, (options.num_requests, options.prompt_len), generator=torch.Generator().manual_seed(0))
    for number, prompt in enumerate(tokens.tolist()):
        adapter = adapters[number % len(adapters)] if adapters else None
        engine.receive(GenerateRequest(str(number), token_bytes(prompt), params, adapter=adapter))
    begin = time.perf_counter()
    if max_tokens > 1:
        engine.step()  # the last token of every prompt is computed again
        begin = time.perf_counter()
    while engine.has_work:
        engine.step()
    return time.perf_counter() - begin


def _publish(options: AdapterBenchOptions, kernels: str, runs: list[AdapterRun]) -> None:
    """Prints and writes the results; each beside the base alone."""
    base = runs[0]
    rows = [
        asdict(one)
        | {
            "prefill_share": one.prefill_tokens_per_s / base.prefill_tokens_per_s,
            "decode_share": one.decode_tokens_per_s / base.decode_tokens_per_s,
        }
        for one in runs
    ]
    result = {
        "benchmark": "adapters",
        "options": report.settings(options),
        "kernels": kernels,
        "runs": rows,
        **report.environment(sys.argv),
    }
    report.publish(result, options, [_table(options, rows)])


def _table(options: AdapterBenchOptions, rows: list[dict[str, Any]]) -> Table:
    title = f"{options.model}: {options.num_requests} requests at once, adapters of rank {options.rank}"
    heads = ("adapters", "prefill tok/s", "of the base", "decode tok/s", "of the base", "decode step")
    table = Table(*heads, title=title, box=box.SIMPLE)
    for row in rows:
        table.add_row(
            str(row["num_adapters"] or "base alone"),
            f"{row['prefill_tokens_per_s']:.0f}",
            f"{row['prefill_share']:.0%}",
            f"{row['decode_tokens_per_s']:.0f}",
            f"{row['decode_share']:.0%}",
            f"{row['decode_step_ms']:.1f} ms",
        )
    return table


app = make_app(
    "adapters",
    "Measure what adapters cost: 1, 4 and 16 of them against the base alone.",
    """  python -m benchmarks.adapters
  python -m benchmarks.adapters --rank 64 --num-requests 8 --output-file adapters.json""",
)


@app.default
def adapters(*, options: Annotated[AdapterBenchOptions, Parameter(name="*")] = AdapterBenchOptions()) -> int:
    """Runs the base, then growing numbers of adapters; returns the exit code."""
    return run(options)


if __name__ == "__main__":
    main(app)
