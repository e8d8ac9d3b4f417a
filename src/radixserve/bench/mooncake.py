"""A Mooncake trace as a workload: the sharing and the lengths of a production service, with made-up tokens.

Each line of the JSONL has `input_length`, `output_length` and `hash_ids`, one a page of 512 tokens; equal ids mean equal
content after an equal prefix. A page's tokens are made from its id alone, and the last page is cut to the input length.
"""

from pathlib import Path

from radixserve.bench.synthetic import TokenSource
from radixserve.bench.workloads import TokenSession, Turn, Workload
from radixserve.simulator.traces import PAGE_LEN, read_trace
from radixserve.tokens import TOKEN_BYTES


def mooncake(path: Path, *, num_prompts: int | None, max_len: int, vocab_size: int, seed: int = 0) -> Workload:
    """The first `num_prompts` requests whose prompt and answer together have at most `max_len` tokens."""
    sessions: list[TokenSession] = []
    left_out = 0
    pages: dict[int, bytes] = {}
    for request in read_trace(path):
        if len(sessions) == num_prompts:
            break
        if request.input_length + request.output_length > max_len:
            left_out += 1
            continue
        for hash_id in request.hash_ids:
            if hash_id not in pages:
                pages[hash_id] = _page(hash_id, vocab_size, seed)
        prompt = b"".join(pages[hash_id] for hash_id in request.hash_ids)[: request.input_length * TOKEN_BYTES]
        sessions.append(TokenSession((Turn(prompt, request.output_length),)))
    note = f"{left_out} requests left out: longer than --max-len {max_len}" if left_out else ""
    return Workload("mooncake", tuple(sessions), note=note)


def _page(hash_id: int, vocab_size: int, seed: int) -> bytes:
    return TokenSource(f"mooncake {hash_id}", seed, vocab_size).take(PAGE_LEN)
