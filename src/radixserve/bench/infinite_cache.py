"""What a cache that never forgets would have reused: the yardstick for a measured hit rate.

It keeps every prompt and every answer, token by token, and computes at least one token of each prompt. Like the real cache it
has no KV of an answer's last token, which was sampled and never fed back.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from radixserve.tokens import TOKEN_BYTES, as_ids, token_len


class InfiniteCache:
    """All sequences seen, sorted. The longest common prefix with any of them is the longest with a neighbour in the order."""

    def __init__(self) -> None:
        self._sequences: list[bytes] = []

    def match(self, tokens: bytes) -> int:
        """Length of the longest prefix of `tokens` (int32 bytes) that some inserted sequence begins with."""
        position = bisect_left(self._sequences, tokens)
        neighbours = self._sequences[max(position - 1, 0) : position + 1]
        return max((_common_prefix_len(tokens, other) for other in neighbours), default=0)

    def insert(self, tokens: bytes) -> None:
        position = bisect_left(self._sequences, tokens)
        if position == len(self._sequences) or self._sequences[position] != tokens:
            self._sequences.insert(position, tokens)


@dataclass(frozen=True)
class Exchange:
    """One request as it was sent and answered: int32 bytes, and seconds on any one clock."""

    start_s: float
    end_s: float
    prompt: bytes
    answer: bytes
    """Without its last token when that was never fed back."""


def ideal_cached_tokens(exchanges: Iterable[Exchange]) -> int:
    """Prompt tokens that an infinite cache reuses. A prompt is kept from its start on, its answer from its end on.

    That a prompt counts as kept at once is what an engine can reach that lets requests wait for a prefix being computed.
    """
    events: list[tuple[float, int, Exchange]] = []
    for exchange in exchanges:
        events += [(exchange.start_s, 1, exchange), (exchange.end_s, 0, exchange)]
    cache = InfiniteCache()
    cached_tokens = 0
    for _, is_start, exchange in sorted(events, key=lambda event: event[:2]):
        if is_start:
            cached_tokens += min(cache.match(exchange.prompt), token_len(exchange.prompt) - 1)
            cache.insert(exchange.prompt)
        else:
            cache.insert(exchange.prompt + exchange.answer)
    return cached_tokens


def _common_prefix_len(a: bytes, b: bytes) -> int:
    length = min(len(a), len(b))
    differs = as_ids(a[:length]) != as_ids(b[:length])
    first = int(differs.argmax()) if length else 0
    return first if length and differs[first] else length // TOKEN_BYTES
