"""How long it takes to choose tokens from logits: greedy, from the whole distribution, from nuclei, with log-probabilities.

    python benchmarks/sampling.py [--rows 64 256] [--vocab 128256] > benchmarks/results/sampling-DATE.json

Against another version of the code, in one sitting: PYTHONPATH=OTHER/src python benchmarks/sampling.py. Equal numbers under
`tokens` mean that both chose the same. Logits are synthetic: they fall with the logarithm of their rank, each row by another slope;
`beyond_1024` is the share of rows whose nucleus has more than 1,024 tokens. Times are the least of many.
"""

import argparse
import json
import sys
import time
import zlib

import numpy as np
import torch

from radixserve import kernels
from radixserve.bench.report import environment
from radixserve.req import Req
from radixserve.sampling.sampler import Sampler
from radixserve.sampling_params import SamplingParams
from radixserve.tokens import token_bytes

CASES: dict[str, dict[str, float]] = {
    "greedy": {"temperature": 0.0},
    "whole": {},
    "whole, logprobs": {"logprobs": 5},
    "top_k 50": {"top_k": 50},
    "top_p 0.9, T 0.7": {"top_p": 0.9, "temperature": 0.7},
    "top_p 0.99": {"top_p": 0.99},
    "top_p 0.95, T 1.2": {"top_p": 0.95, "temperature": 1.2},
}
SLOPES = (1.4, 2.2)
"""A row's logits fall by so much times the logarithm of their rank; small slopes are the open ends of texts."""


def make_logits(rows: int, vocab: int) -> torch.Tensor:
    """float32 [rows, vocab]"""
    draw = torch.Generator().manual_seed(0)
    slopes = torch.linspace(*SLOPES, rows)[:, None]
    ranks = torch.stack([torch.randperm(vocab, generator=draw) for _ in range(rows)])
    return -slopes * (ranks + 1.0).log() + torch.randn(rows, vocab, generator=draw) / 4


def beyond(logits: torch.Tensor, params: SamplingParams, size: int = 1024) -> float:
    """Share of rows whose nucleus has more tokens than `size`."""
    found = 0
    for row in logits:
        likely = (row / params.temperature).softmax(-1).topk(size).values
        found += bool(likely.sum() < params.top_p)
    return found / len(logits)


def measure(logits: torch.Tensor, fields: dict[str, float], seconds: float) -> dict[str, float]:
    """Milliseconds of a call, the least of those in `seconds`; and a checksum of the tokens."""
    params = SamplingParams(**fields)  # type: ignore[arg-type]
    reqs = [Req(str(i), i, token_bytes([1]), 1, params, 100, frozenset()) for i in range(len(logits))]
    best, until = float("inf"), time.perf_counter() + seconds
    while (begin := time.perf_counter()) < until or best == float("inf"):
        token_ids = Sampler().sample(logits, reqs).token_ids  # nothing here changes the logits
        best = min(best, time.perf_counter() - begin)
    row = {"ms": round(best * 1e3, 2), "tokens": zlib.crc32(np.array(token_ids, dtype=np.int64).tobytes())}
    return row | ({"beyond_1024": round(beyond(logits, params), 3)} if params.top_p < 1.0 else {})


def main() -> None:
    """Reads the command line, measures, prints JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--vocab", type=int, default=128_256)
    parser.add_argument("--num-threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=4.0, help="time for each case")
    options = parser.parse_args()
    torch.set_num_threads(options.num_threads)
    kernels.set_num_threads(options.num_threads)
    rows = []
    for num in options.rows:
        logits = make_logits(num, options.vocab)
        rows += [{"case": case, "rows": num, **measure(logits, fields, options.seconds)} for case, fields in CASES.items()]
    result = environment(["python", "benchmarks/sampling.py", *sys.argv[1:]])
    print(json.dumps({**result, "vocab": options.vocab, "num_threads": options.num_threads, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
