"""The bounds, against models that know every token."""

from hypothesis import given
from hypothesis import strategies as st

from radixserve.simulator.optimum import Clairvoyant, infinite_hits, uses_of
from radixserve.simulator.requests import SimRequest
from radixserve.tokens import token_bytes

asked = st.lists(
    st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=6), st.lists(st.integers(0, 2), min_size=1, max_size=4)),
    min_size=1,
    max_size=15,
)
Asked = list[tuple[list[int], list[int]]]


def requests(pairs: Asked) -> list[SimRequest]:
    return [
        SimRequest(
            number=i, arrival_s=float(i), prompt_len=len(prompt), output_len=len(output), max_tokens=len(output),
            tokens=token_bytes(prompt + output),
        )
        for i, (prompt, output) in enumerate(pairs)
    ]  # fmt: skip


def prefixes(tokens: list[int]) -> list[tuple[int, ...]]:
    return [tuple(tokens[: i + 1]) for i in range(len(tokens))]


@given(asked)
def test_an_infinite_cache_reuses_every_prefix_seen_before(pairs: Asked) -> None:
    seen: set[tuple[int, ...]] = set()
    hits = 0
    for prompt, output in pairs:
        hits += min(sum(page in seen for page in prefixes(prompt)), len(prompt) - 1)
        seen.update(prefixes([*prompt, *output[:-1]]))
    assert infinite_hits(uses_of(requests(pairs))) == hits
    assert Clairvoyant(uses_of(requests(pairs)), 10_000).hits == hits


@given(asked, st.integers(1, 20))
def test_the_clairvoyant_cache_evicts_token_by_token_what_is_used_last(pairs: Asked, num_slots: int) -> None:
    held: set[tuple[int, ...]] = set()
    hits = 0
    for now, (prompt, output) in enumerate(pairs):
        hits += min(sum(page in held for page in prefixes(prompt)), len(prompt) - 1)
        path = prefixes([*prompt, *output[:-1]])[:num_slots]
        held.update(path)
        while len(held) > num_slots:
            leaves = [p for p in held if p not in path and not any(q[:-1] == p for q in held)]
            later = {p: _next_use(p, pairs, now) for p in leaves}
            held.remove(max(leaves, key=lambda p: later[p]))
    assert Clairvoyant(uses_of(requests(pairs)), num_slots).hits == hits


def _next_use(page: tuple[int, ...], pairs: Asked, now: int) -> int:
    times = (t for t in range(now + 1, len(pairs)) if tuple(pairs[t][0][: len(page)]) == page)
    return next(times, len(pairs))
