"""What the radix tree costs: the rows of `python -m benchmarks.tree`.

Every time is CPU time of this thread, the best of several rounds, so that a busy machine disturbs little. Tokens are made into
bytes before the clock starts, as the engine does once a request.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import thread_time
from typing import Annotated

import numpy as np
from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from benchmarks.command import main, make_app
from radixserve.cache.prefix_cache import Lease, PrefixCache
from radixserve.errors import ConfigError
from radixserve.simulator.traces import PAGE_LEN, read_trace
from radixserve.tokens import SHARED, TOKEN_BYTES, token_bytes, token_len

VOCAB_SIZE = 50_000
NUM_REQUESTS = 2_000
CAPACITY = 3_000_000


@dataclass(frozen=True)
class TreeRow:
    """One figure."""

    name: str
    value: float
    unit: str


def bench_tree(mooncake: Path | None) -> list[TreeRow]:
    """Measures every row; those of the whole cycle only where a Mooncake trace (JSONL) is given. Takes about a minute.

    Raises ConfigError, before anything is measured, when `mooncake` is no file.
    """
    if mooncake is not None and not mooncake.is_file():
        raise ConfigError(f"--mooncake {mooncake} is not a file")
    rng = np.random.default_rng(0)
    rows = [*_match_rows(rng), _long_edge_row(rng), _depth_row(rng), _insert_row(rng)]
    rows += [_evict_one_row(rng, num_leaves) for num_leaves in (2_000, 20_000, 100_000)]
    rows.append(_evict_many_row(rng))
    return rows + (mooncake_rows(mooncake) if mooncake else [])


def print_rows(rows: list[TreeRow], as_json: bool) -> None:
    """Prints a table, or a JSON list of objects."""
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    table = Table("radix tree", "value", "unit")
    table.columns[1].justify = "right"
    for row in rows:
        table.add_row(row.name, f"{row.value:,.0f}" if row.value >= 1000 else f"{row.value:.4g}", row.unit)
    Console().print(table)


def _match_rows(rng: np.random.Generator) -> Iterator[TreeRow]:
    """A forest of conversations: 20 system prompts, 1,109 chats of 9 turns, 10,000 nodes; full hits through 10 nodes."""
    cache = PrefixCache(5_000_000)
    system_prompts = [rng.integers(0, VOCAB_SIZE, 1_846) for _ in range(20)]
    chats: list[bytes] = []
    for chat in range(1_109):
        tokens = system_prompts[chat % 20]
        for _ in range(9):
            _store(cache, token_bytes(tokens))
            tokens = np.concatenate([tokens, rng.integers(0, VOCAB_SIZE, 250)])
        _store(cache, token_bytes(tokens))
        chats.append(token_bytes(tokens))
    nodes = f"{cache.num_nodes:,} nodes"
    assert all(cache.match(tokens).cached_len == 4_096 for tokens in chats)

    def match() -> None:
        for tokens in chats:
            cache.match(tokens)

    def match_and_list() -> None:
        for tokens in chats:
            walk = cache.tree.walk(cache.tree.find_root(SHARED), tokens)
            np.concatenate([node.slots for node in walk.path])

    def acquire() -> None:
        for tokens in chats:
            cache.release(cache.acquire(tokens))

    yield TreeRow(f"match 4,096 tokens, {nodes}, 10 hops, full hit", _best(match, 7) / len(chats) * 1e6, "us")
    yield TreeRow("the same and the list of slots", _best(match_and_list, 7) / len(chats) * 1e6, "us")
    yield TreeRow("the same acquired and released", _best(acquire, 7) / len(chats) * 1e6, "us")


def _long_edge_row(rng: np.random.Generator) -> TreeRow:
    cache = PrefixCache(100_000)
    tokens = rng.integers(0, VOCAB_SIZE, 100_000)
    _store(cache, token_bytes(tokens))
    tokens[-1] += 1
    other = token_bytes(tokens)
    assert cache.match(other).cached_len == 99_999

    def match() -> None:
        for _ in range(100):
            cache.match(other)

    return TreeRow("one 100k-token edge, last token differs, repeated", _best(match, 20) / 100 * 1e6, "us")


def _depth_row(rng: np.random.Generator) -> TreeRow:
    depth = 5_000
    cache = PrefixCache(depth)
    tokens = token_bytes(rng.integers(0, VOCAB_SIZE, depth))
    lease = cache.acquire(tokens)
    cache.extend(lease, depth)
    for length in range(1, depth + 1):
        cache.publish(lease, tokens[: length * TOKEN_BYTES], length)
    cache.release(lease)
    assert cache.num_nodes == depth
    return TreeRow("match through 5,000 nodes, a hop", _best(lambda: cache.match(tokens), 30) / depth * 1e6, "us")


def _insert_row(rng: np.random.Generator) -> TreeRow:
    """Only `publish` is timed: acquire and extend have rows and steps of their own."""
    cache = PrefixCache(3_000_000)
    half = rng.integers(0, VOCAB_SIZE, 2_048)
    prompts = [token_bytes(np.concatenate([half, rng.integers(0, VOCAB_SIZE, 2_048)])) for _ in range(100)]
    _store(cache, token_bytes(half))

    def publish() -> float:
        spent = 0.0
        for prompt in prompts:
            lease = cache.acquire(prompt)
            cache.extend(lease, 4_096)
            start = thread_time()
            cache.publish(lease, prompt, 4_096)
            spent += thread_time() - start
            cache.release(lease)
        cache.evict(100 * 2_048)
        return spent

    return TreeRow("insert 4,096 tokens, half cached", min(publish() for _ in range(10)) / 100 * 1e6, "us")


def _leaves(rng: np.random.Generator, num_leaves: int) -> PrefixCache:
    """A cache of `num_leaves` leaves of ten tokens, used again in random order."""
    cache = PrefixCache(num_leaves * 10)
    prompts = [token_bytes(np.concatenate([[leaf], rng.integers(0, VOCAB_SIZE, 9)])) for leaf in range(num_leaves)]
    for prompt in prompts:
        _store(cache, prompt)
    for leaf in rng.permutation(num_leaves):
        cache.release(cache.acquire(prompts[leaf]))
    cache.evict(1)  # the first eviction after so many uses pays for putting the leaves in order
    return cache


def _evict_one_row(rng: np.random.Generator, num_leaves: int) -> TreeRow:
    cache = _leaves(rng, num_leaves)
    num_evictions = num_leaves // 10

    def evict() -> None:
        for _ in range(num_evictions):
            cache.evict(1)

    return TreeRow(f"evict one leaf of {num_leaves:,}", _best(evict, 5) / num_evictions * 1e6, "us")


def _evict_many_row(rng: np.random.Generator) -> TreeRow:
    cache = _leaves(rng, 100_000)
    return TreeRow("evict 10% of 1M slots, 100,000 leaves", _best(lambda: cache.evict(100_000), 5) * 1e3, "ms")


def mooncake_rows(path: Path) -> list[TreeRow]:
    """match, acquire, extend, publish, release for each of the first 2,000 requests of the trace, one after another."""
    prompts = _mooncake_prompts(path)
    num_cached = 0

    def replay() -> float:
        nonlocal num_cached
        cache = PrefixCache(CAPACITY)
        num_cached = 0
        start = thread_time()
        for tokens in prompts:
            cache.match(tokens)
            num_cached += _store(cache, tokens).cached_len
        return thread_time() - start

    seconds = min(replay() for _ in range(9))
    num_tokens = sum(map(len, prompts)) // 4
    return [
        TreeRow(f"whole cycle, Mooncake, {num_tokens / 1e6:.1f}M tokens, capacity 3M", len(prompts) / seconds, "requests/s"),
        TreeRow("token hit rate of it", num_cached / num_tokens, ""),
    ]


def _mooncake_prompts(path: Path) -> list[bytes]:
    """Prompts as int32 bytes: an id of the trace is a page of 512 tokens of its own, the last one cut to the prompt's length."""
    page = np.arange(PAGE_LEN, dtype=np.int32)
    prompts: list[bytes] = []
    for request in read_trace(path)[:NUM_REQUESTS]:
        pages = np.array(request.hash_ids, dtype=np.int32)[:, None] * PAGE_LEN + page
        prompts.append(pages.tobytes()[: request.input_length * TOKEN_BYTES])
    return prompts


def _store(cache: PrefixCache, tokens: bytes) -> Lease:
    """What a request does to the cache, without its computing. Returns the ended lease."""
    length = token_len(tokens)
    lease = cache.acquire(tokens)
    cache.extend(lease, length)
    cache.publish(lease, tokens, length)
    cache.release(lease)
    return lease


def _best(work: Callable[[], object], rounds: int) -> float:
    """Least CPU seconds of one call."""

    def timed() -> float:
        start = thread_time()
        work()
        return thread_time() - start

    return min(timed() for _ in range(rounds))


app = make_app(
    "tree",
    "Measure the radix tree alone: no model, no server.",
    """  python -m benchmarks.tree
  python -m benchmarks.tree --mooncake conversation_trace.jsonl --json""",
)


@app.default
def tree(
    *, mooncake: Path | None = None, as_json: Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")] = False
) -> None:
    """Measures and prints.

    Parameters
    ----------
    mooncake
        A Mooncake trace (JSONL) to send through the whole cycle of match, acquire, extend, publish and release.
    """
    print_rows(bench_tree(mooncake), as_json)


if __name__ == "__main__":
    main(app)
