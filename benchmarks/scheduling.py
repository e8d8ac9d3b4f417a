"""What scheduling costs: engines of this process over a runner that only counts, so that all time is their own.

    python benchmarks/scheduling.py [--scale 1.0]

Times are CPU time of this thread. Figures of a step are medians over the steps of a run, of the best of `--rounds` runs.
"""

import argparse
import json
import sys
from collections.abc import Callable
from statistics import median
from time import thread_time
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from radixserve.bench.report import environment
from radixserve.config import EngineConfig
from radixserve.engine.assemble import assemble
from radixserve.engine.counting_runner import CountingRunner
from radixserve.engine.engine import Engine
from radixserve.ipc import EngineInfo, GenerateRequest
from radixserve.limits import Limits
from radixserve.llm import LLM
from radixserve.sampling_params import SamplingParams
from radixserve.tokens import token_bytes

VOCAB_SIZE = 50_000
NUM_SLOTS = 1_000_000
PREFIX_LEN = 32_768


def make_engine(**settings: Any) -> Engine:
    """An engine that only counts. `settings` are those of EngineConfig."""
    limits = Limits(VOCAB_SIZE, 2 * PREFIX_LEN, NUM_SLOTS, 1)
    info = EngineInfo("counting", "none", "cpu", limits, kv_bytes=0, num_threads=1)
    return assemble(EngineConfig(**settings), info, CountingRunner())


def send(engine: Engine, prompts: list[np.ndarray], max_tokens: int) -> None:
    """Queues greedy requests, one a prompt."""
    params = SamplingParams(max_tokens=max_tokens, temperature=0, ignore_eos=True)
    for number, prompt in enumerate(prompts):
        engine.receive(GenerateRequest(f"{number} of {len(prompts)}", token_bytes(prompt), params))


def tokens(draw: np.random.Generator, *shape: int) -> np.ndarray:
    """Random token ids, int32."""
    return draw.integers(0, VOCAB_SIZE, shape, dtype=np.int32)


def waiting(num_waiting: int) -> float:
    """Milliseconds of a plan: short requests come and go, which share 20 prefixes, and `num_waiting` more wait."""
    draw = np.random.default_rng(0)
    prefixes, ends = tokens(draw, 20, 128), tokens(draw, num_waiting + 1_000, 64)
    engine = make_engine()
    send(engine, [np.concatenate([prefixes[i % 20], end[: 16 + i % 48]]) for i, end in enumerate(ends)], max_tokens=8)
    engine.step()
    plans = timed_plans(engine)
    while len(engine.scheduler.waiting) > num_waiting:
        engine.step()
    return median(plans) * 1_000


def waiting_for_prefix(num_waiting: int) -> float:
    """Milliseconds of a plan: `num_waiting` requests wait for one prompt, which they begin with, while it is computed."""
    draw = np.random.default_rng(0)
    prefix, ends = tokens(draw, PREFIX_LEN), tokens(draw, num_waiting, 64)
    engine = make_engine()
    send(engine, [np.concatenate([prefix, end]) for end in ends], max_tokens=1)
    engine.step()
    plans = timed_plans(engine)
    while len(engine.scheduler.running) == 1:
        engine.step()
    return median(plans[:-2]) * 1_000


def offline(num_prompts: int) -> float:
    """Seconds that LLM.generate takes for prompts of 64 tokens and answers of 8."""
    prompts = list(tokens(np.random.default_rng(0), num_prompts, 64))
    with patch("radixserve.llm.build_engine", lambda config: make_engine()):
        llm = LLM()
    with patch.object(LLM, "tokenizer", SimpleNamespace(eos_ids=frozenset())):
        begin = thread_time()
        llm.generate(prompts, SamplingParams(max_tokens=8, temperature=0, ignore_eos=True), progress=False)
        return thread_time() - begin


def decoding(num_running: int) -> tuple[float, float]:
    """Milliseconds of a step in which `num_running` greedy requests decode, and of its plan."""
    engine = make_engine(max_running=num_running)
    send(engine, list(tokens(np.random.default_rng(0), num_running, 64)), max_tokens=2_000)
    while not engine.scheduler.running or any(req.computed_len < 65 for req in engine.scheduler.running):
        engine.step()
    plans, steps = timed_plans(engine), []
    for _ in range(200):
        begin = thread_time()
        engine.step()
        steps.append(thread_time() - begin)
    return median(steps) * 1_000, median(plans) * 1_000


def timed_plans(engine: Engine) -> list[float]:
    """A list to which each plan from now on adds its seconds."""
    plan, seconds = engine.scheduler.plan, []

    def timed() -> Any:
        begin = thread_time()
        batch = plan()
        seconds.append(thread_time() - begin)
        return batch

    engine.scheduler.plan = timed  # type: ignore[method-assign]
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of all numbers of requests: less is quicker, for a first look")
    options = parser.parse_args()

    def best(measure: Callable[[int], float], number: int) -> float:
        return min(measure(round(number * options.scale)) for _ in range(options.rounds))

    rows = [
        ("plan, 10,000 waiting", best(waiting, 10_000), "ms"),
        ("plan, 3,000 waiting for one prefix of 32,768 tokens", best(waiting_for_prefix, 3_000), "ms"),
        *((f"generate {number:,} prompts", best(offline, number), "s") for number in (1_250, 2_500, 5_000)),
        ("step, 256 greedy running", best(lambda number: decoding(number)[0], 256), "ms"),
        ("plan of that step", best(lambda number: decoding(number)[1], 256), "ms"),
    ]
    result = environment(["python", "benchmarks/scheduling.py", *sys.argv[1:]])
    result |= {"rounds": options.rounds, "scale": options.scale}
    result["rows"] = [{"name": name, "value": round(value, 4), "unit": unit} for name, value, unit in rows]
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
