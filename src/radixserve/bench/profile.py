"""`radixserve bench profile`: times steps of a model and fits the cost model that `radixserve simulate` predicts times with.

Steps are those of real requests in the real engine: prompts of several lengths, alone and together, each followed by some decodes.
A step's time is that of the whole `Engine.step`, so that the scheduler's share is in it, and the least of several rounds, so that a
busy machine disturbs little.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from rich.console import Console
from rich.progress import track

from radixserve.batch import ForwardBatch
from radixserve.config import EngineConfig, check_can_write
from radixserve.engine.build import build_engine
from radixserve.engine.engine import Engine
from radixserve.engine.runner import PendingStep, Runner
from radixserve.ipc import EngineInfo, FlushRequest, GenerateRequest
from radixserve.sampling_params import SamplingParams
from radixserve.simulator.cost import CostModel, StepShape, fit, shape_of
from radixserve.tokens import token_bytes

LONG = ((1, 512), (4, 512), (1, 1024), (1, 2000))
LOADS = ((1, 16), (1, 32), (4, 32), (16, 32), (1, 128), (1, 256), (8, 128), *LONG)
"""(requests at once, tokens of each prompt)."""
OUTPUT_LEN = 8
NUM_ROUNDS = 3
SEED = 0


@dataclass
class TimedRunner:
    """Lets another runner compute, and remembers the shape of the last step."""

    runner: Runner
    shape: StepShape | None = None

    def launch(self, batch: ForwardBatch) -> PendingStep:
        self.shape = shape_of(batch.extend_lens, batch.seq_lens)
        return self.runner.launch(batch)


def profile(config: EngineConfig, output: Path, *, as_json: bool) -> None:
    """Measures, fits, writes the file and prints what was found. Takes about a minute for the default model on two cores."""
    check_can_write("output", output)
    engine = build_engine(config)
    limits = engine.info.limits
    fitting = [(count, length) for count, length in LOADS if _needed(count, length) <= limits.num_slots]
    loads = [load for load in fitting if load[1] + OUTPUT_LEN <= limits.max_context_len]
    best: dict[StepShape, float] = {}
    for number, load in enumerate(track(loads * NUM_ROUNDS, "measuring steps", console=Console(stderr=True), transient=True)):
        for shape, seconds in _measure(engine, load, number):
            best[shape] = min(seconds, best.get(shape, seconds))
    costs = fit(list(best), list(best.values()), _source(engine.info), max(length for _, length in loads) + OUTPUT_LEN)
    output.write_bytes(msgspec.json.format(msgspec.json.encode(costs)) + b"\n")
    if as_json:
        print(output.read_text(), end="")
    else:
        _print(costs, len(best), output)


def _needed(count: int, length: int) -> int:
    """Slots of one load."""
    return count * (length + OUTPUT_LEN)


def _measure(engine: Engine, load: tuple[int, int], number: int) -> list[tuple[StepShape, float]]:
    """Shape and seconds of every step of some requests that share nothing, in an empty cache."""
    count, length = load
    draw = np.random.default_rng((SEED, number))
    params = SamplingParams(max_tokens=OUTPUT_LEN, ignore_eos=True, temperature=0.0)
    engine.receive(FlushRequest("flush"))
    for i in range(count):
        prompt = draw.integers(0, engine.info.limits.vocab_size, length)
        engine.receive(GenerateRequest(f"{number}.{i}", token_bytes(prompt), params))
    timed = TimedRunner(engine.runner)
    engine.runner = timed
    steps = []
    while engine.has_work:
        start_s = time.perf_counter()
        engine.step()
        assert timed.shape is not None
        steps.append((timed.shape, time.perf_counter() - start_s))
    engine.runner = timed.runner
    return steps


def _source(info: EngineInfo) -> str:
    return f"{info.model}, {info.dtype} on {info.device}, {info.num_threads} threads; {info.kernels}"


def _print(costs: CostModel, num_steps: int, output: Path) -> None:
    console = Console(highlight=False)
    console.print(f"{num_steps} steps of {costs.source}", markup=False)
    console.print(f"{1e3 * costs.step_s:.2f} ms a step, {1e6 * costs.token_s:.1f} us a token computed,")
    console.print(f"{1e9 * costs.pair_s:.2f} ns a token attended to, {1e9 * costs.context_s:.2f} ns a token of context read")
    console.print(f"half of the steps are within {100 * costs.error:.0f}% of this; written to {output}", markup=False)
