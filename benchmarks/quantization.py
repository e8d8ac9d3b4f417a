"""What int8 costs and gives: perplexity of a text, and the time of a step, on the native kernels, int8 against none in one run.

    python benchmarks/quantization.py --text FILE [--model smollm2-135m] > benchmarks/results/quantization-DATE.json

The text is read in windows of 1,024 tokens, each from an empty cache. Times are the least of many, taken in turn.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from radixserve import kernels
from radixserve.batch import ForwardBatch
from radixserve.bench.report import environment
from radixserve.cache.kv_pool import KVPool
from radixserve.models.decoder import AnyDecoder
from radixserve.models.loader import load_model
from radixserve.models.native_operations import NativeOperations
from radixserve.models.registry import resolve
from radixserve.text.tokenizer import Tokenizer

WINDOW, CHUNK = 1024, 256
QUANTIZATIONS = ("none", "int8")
STEPS = {"decode of 1": (1, 1), "decode of 8": (8, 1), "prefill of 512": (1, 512)}
"""Rows and tokens a row."""
CONTEXT = 100
"""Tokens before those of a decode."""


class Stepper:
    """A decoder and rows of WINDOW slots each."""

    def __init__(self, decoder: AnyDecoder, rows: int) -> None:
        config = decoder.config
        pool = KVPool(config.num_layers, rows * WINDOW, 1, config.num_kv_heads, config.head_dim, decoder.dtype)
        self._decoder, self._begin = decoder, decoder.steps(pool)
        self._table = torch.arange(1, rows * WINDOW + 1, dtype=torch.int32).view(rows, WINDOW)

    def step(self, ids: torch.Tensor, start: int, all_logits: bool = True) -> torch.Tensor:
        """Logits of `ids` [rows, n] at positions from `start`, or of each row's last."""
        rows, n = ids.shape
        batch = ForwardBatch(
            reqs=[],
            extend_lens=[n] * rows,
            seq_lens=[start + n] * rows,
            rows=list(range(rows)),
            input_ids=ids.reshape(-1).contiguous(),
            positions=torch.arange(start, start + n).repeat(rows),
            out_slots=self._table[:rows, start : start + n].reshape(-1).long(),
            logits_rows=torch.arange(rows * n) if all_logits else torch.arange(rows) * n + n - 1,
            sampled=[],
            slot_table=self._table,
        )
        return self._decoder.logits(self._decoder.forward(batch, self._begin(batch)), batch.logits_rows)


def perplexity(decoder: AnyDecoder, ids: torch.Tensor) -> float:
    """exp of the mean of -log p of each token but the first of a window."""
    total, count = 0.0, 0
    for window in torch.split(ids, WINDOW):
        stepper = Stepper(decoder, 1)
        for start in range(0, len(window) - 1, CHUNK):
            chunk, following = window[start : start + CHUNK], window[start + 1 : start + CHUNK + 1]
            logits = stepper.step(chunk[None], start)[: len(following)]
            total += torch.nn.functional.cross_entropy(logits, following, reduction="sum").item()
            count += len(following)
    return math.exp(total / count)


def best_times(decoders: dict[str, AnyDecoder], rows: int, n: int, repeats: int) -> dict[str, float]:
    """Milliseconds of a step, by quantization."""
    ids = torch.randint(1000, 2000, (rows, CONTEXT + n), generator=torch.Generator().manual_seed(0))
    start = CONTEXT if n == 1 else 0
    calls: dict[str, Callable[[], object]] = {}
    for name, decoder in decoders.items():
        stepper = Stepper(decoder, rows)
        stepper.step(ids[:, :CONTEXT], 0)
        calls[name] = partial(stepper.step, ids[:, start : start + n], start, all_logits=False)
    best = dict.fromkeys(decoders, math.inf)
    for _ in range(repeats):
        for name, call in calls.items():
            before = time.perf_counter()
            call()
            best[name] = min(best[name], (time.perf_counter() - before) * 1000)
    return best


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--num-tokens", type=int, default=8192)
    parser.add_argument("--num-threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.num_threads)
    kernels.set_num_threads(options.num_threads)
    path = Path(resolve(options.model))
    ids = torch.from_numpy(Tokenizer.load(path).encode(options.text.read_text())).long()[: options.num_tokens]
    decoders = {
        name: load_model(path, torch.bfloat16, torch.device("cpu"), NativeOperations(int8=name == "int8")) for name in QUANTIZATIONS
    }
    rows = []
    for step, (num_rows, n) in STEPS.items():
        for name, value in best_times(decoders, num_rows, n, repeats=20 if n > 1 else 100).items():
            rows.append({"name": f"{step}, {name}", "value": value, "unit": "ms"})
    for name, decoder in decoders.items():
        rows.append({"name": f"perplexity of {len(ids)} tokens, {name}", "value": perplexity(decoder, ids), "unit": ""})
    command = ["python", "benchmarks/quantization.py", *sys.argv[1:]]
    print(json.dumps({**environment(command), "kernels": kernels.level(), "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
