"""What reading a shared prefix once is worth: requests that decode on one prefix in the tree, against the same requests on copies.

    python benchmarks/tree_attention.py [--num-requests 8 32] [--prefix-len 2048] > benchmarks/results/tree-attention-DATE.json

The engine runs in this process. "shared": all requests find one prefix. "copies": each finds its own copy of the same prefix, in
a namespace of its own (cache salt), so that no two share a tile of slots and the kernel reads each copy. Both are cached beforehand
and decode the same tokens; a difference in any answer ends the run. Both are run in turn, and medians are reported.
"""

import argparse
import json
import statistics
import sys
import time

import numpy as np

from radixserve.bench.report import environment
from radixserve.config import EngineConfig
from radixserve.engine.build import build_engine
from radixserve.engine.engine import Engine
from radixserve.ipc import GenerateRequest, Output, RequestFailed
from radixserve.sampling_params import SamplingParams
from radixserve.tokens import token_bytes

QUESTION_LEN = 32


class Requests:
    """`num` requests on one prefix; `copies` gives each a copy of its own."""

    def __init__(self, engine: Engine, num: int, prefix_len: int, output_len: int) -> None:
        rng = np.random.default_rng(0)
        vocab_size = engine.info.limits.vocab_size
        self._engine = engine
        self._prefix = rng.integers(0, vocab_size, prefix_len)
        self._questions = [rng.integers(0, vocab_size, QUESTION_LEN) for _ in range(num)]
        self._output_len = output_len

    def fill(self, copies: bool) -> None:
        """Puts the prefix into the tree: once, or once for each request."""
        for number in range(len(self._questions) if copies else 1):
            self._run([self._request(number, self._prefix, 1, copies)])

    def decode(self, copies: bool) -> tuple[float, dict[str, list[int]]]:
        """Seconds a decode step in which all requests take part (the median), and the answers by request id."""
        prompts = [np.concatenate([self._prefix, question]) for question in self._questions]
        return self._run([self._request(i, prompt, self._output_len, copies) for i, prompt in enumerate(prompts)])

    def _request(self, number: int, prompt: np.ndarray, max_tokens: int, copies: bool) -> GenerateRequest:
        params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        return GenerateRequest(str(number), token_bytes(prompt), params, cache_salt=f"copy {number}" if copies else None)

    def _run(self, requests: list[GenerateRequest]) -> tuple[float, dict[str, list[int]]]:
        engine, times = self._engine, []
        answers: dict[str, list[int]] = {request.rid: [] for request in requests}
        for request in requests:
            engine.receive(request)
        while engine.has_work:
            begin = time.perf_counter()
            outputs = engine.step()
            seconds = time.perf_counter() - begin
            news = [output for output in outputs if isinstance(output, Output)]
            if failed := [output for output in outputs if isinstance(output, RequestFailed)]:
                raise SystemExit(f"a request failed: {failed[0].message}")
            for output in news:
                answers[output.rid] += output.token_ids
            if len(news) == len(requests) and all(len(answers[rid]) > 1 for rid in answers):
                times.append(seconds)
        return statistics.median(times) if times else 0.0, answers


def measure(engine: Engine, num: int, prefix_len: int, output_len: int, reps: int) -> dict[str, float]:
    """Milliseconds a step, shared and on copies, and their ratio."""
    requests = Requests(engine, num, prefix_len, output_len)
    seconds: dict[bool, list[float]] = {False: [], True: []}
    answers = []
    for copies in seconds:
        requests.fill(copies)
    for _ in range(reps):
        for copies in seconds:
            step, answer = requests.decode(copies)
            seconds[copies].append(step)
            answers.append(answer)
    if any(answer != answers[0] for answer in answers):
        raise SystemExit("answers differ between a shared prefix and copies of it")
    shared, copied = statistics.median(seconds[False]), statistics.median(seconds[True])
    return {
        "num_requests": num,
        "shared_ms": round(shared * 1e3, 2),
        "copies_ms": round(copied * 1e3, 2),
        "speedup": round(copied / shared, 2),
    }


def main() -> None:
    """Reads the command line, measures, prints JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--num-requests", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--prefix-len", type=int, default=2048)
    parser.add_argument("--output-len", type=int, default=32)
    parser.add_argument("--reps", type=int, default=3)
    options = parser.parse_args()
    most = max(options.num_requests)
    num_slots = (most + 2) * (options.prefix_len + QUESTION_LEN + options.output_len + 64) * 2
    rows = []
    for num in options.num_requests:
        engine = build_engine(EngineConfig(model=options.model, num_slots=num_slots))
        rows.append(measure(engine, num, options.prefix_len, options.output_len, options.reps))
        print(rows[-1], file=sys.stderr)
    result = {**environment(sys.argv), "prefix_len": options.prefix_len, "output_len": options.output_len, "steps": rows}
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
