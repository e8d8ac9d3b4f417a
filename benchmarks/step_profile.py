"""Where the time of a decode step goes: the engine in this process on the native kernels, part by part.

    python benchmarks/step_profile.py [--model smollm2-135m] [--rows 1 8] [--steps 100] [--context 100]

A part's time is that of its calls, summed over a step; what remains of a step is Python between them. Each figure is the least of
all steps, so that other work on the machine matters little. Timing a call costs about 0.1 us, counted in.
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from radixserve.config import EngineConfig
from radixserve.engine.build import build_engine
from radixserve.engine.engine import Engine
from radixserve.ipc import GenerateRequest
from radixserve.kernels import _native
from radixserve.models import native_operations
from radixserve.sampling_params import SamplingParams
from radixserve.tokens import token_bytes


class Parts:
    """Seconds of each part in the step that runs."""

    def __init__(self) -> None:
        self.now: dict[str, float] = defaultdict(float)

    def timed(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, its time added to `part`."""

        def run(*args: Any, **kwargs: Any) -> Any:
            begin = time.perf_counter()
            result = call(*args, **kwargs)
            self.now[part] += time.perf_counter() - begin
            return result

        return run

    def watch(self, owner: Any, name: str, part: str) -> None:
        """Times an attribute of `owner` from now on."""
        setattr(owner, name, self.timed(part, getattr(owner, name)))


class TimedNative:
    """The native module, its operations timed. Stands in for it in `models.native_operations`."""

    def __init__(self, parts: Parts) -> None:
        self.qkv_rope_store = parts.timed("norm, q k v, rotation, store", _native.qkv_rope_store)
        self.add_and_mlp = parts.timed("output and MLP", _native.add_and_mlp)
        self.norm_linear = parts.timed("norm and head", _native.norm_linear)

    def __getattr__(self, name: str) -> Any:
        return getattr(_native, name)


class TimedPool:
    """A native pool, its attention timed."""

    def __init__(self, parts: Parts, pool: "_native.AttentionPool") -> None:
        self.attend = parts.timed("attention", pool.attend)


def watch(engine: Engine) -> Parts:
    """Times the parts of an engine's steps."""
    parts = Parts()
    native_operations._native = TimedNative(parts)  # type: ignore[assignment, attr-defined]
    runner: Any = engine.runner
    runner._begin.pool.attention = TimedPool(parts, runner._begin.pool.attention)
    parts.watch(runner, "_begin", "plan of attention, positions")
    parts.watch(runner._sampler, "sample", "sampling")
    parts.watch(runner.decoder, "forward", "model")
    parts.watch(engine.scheduler, "plan", "scheduling")
    parts.watch(engine.scheduler, "commit", "commit")
    parts.watch(engine, "_deliver", "text and messages")
    return parts


def profile(engine: Engine, rows: int, steps: int, context: int) -> dict[str, float]:
    """Milliseconds of a step of `rows` decodes, whole and by part."""
    parts = watch(engine)
    prompts = np.random.default_rng(0).integers(engine.info.limits.vocab_size, size=(rows, context))
    for row, prompt in enumerate(prompts):
        params = SamplingParams(temperature=0.0, max_tokens=steps + 20, ignore_eos=True)
        engine.receive(GenerateRequest(f"{rows}.{row}", token_bytes(prompt), params))
    for _ in range(10):
        engine.step()
    found: list[dict[str, float]] = []
    for _ in range(steps):
        parts.now.clear()
        begin = time.perf_counter()
        engine.step()
        parts.now["step"] = time.perf_counter() - begin
        found.append(dict(parts.now))
    while engine.has_work:
        engine.step()
    return {part: round(1000 * min(one[part] for one in found), 3) for part in found[0]}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=EngineConfig().model)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--context", type=int, default=100)
    options = parser.parse_args()
    result = {}
    for rows in options.rows:
        num_slots = rows * 2 * (options.context + options.steps + 20)
        engine = build_engine(EngineConfig(model=options.model, dtype="bfloat16", kernels="native", num_slots=num_slots))
        result[f"decode {rows}"] = profile(engine, rows, options.steps, options.context)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
