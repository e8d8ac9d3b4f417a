"""The serial mode against a model of it that scans everything."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixserve.errors import ConfigError
from radixserve.simulator.serial import PORTIONS, Portion, num_unique, serial
from radixserve.simulator.traces import page_prompts
from radixserve.tokens import token_bytes

Path = tuple[int, ...]

PROMPTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), min_size=1, max_size=25)


def as_pages(prompts: list[list[int]]) -> list[bytes]:
    """A page is named by the whole prefix that ends with it."""
    return page_prompts([[hash(tuple(p[: i + 1])) for i in range(len(p))] for p in prompts])


def naive_hits(prompts: list[list[int]], num_pages: int, order: Callable[[Path, dict[Path, int], int], float]) -> int:
    """Keeps pages as paths; evicts the leaf of the least `order`."""
    last_used: dict[Path, int] = {}
    hits = 0
    for now, prompt in enumerate(prompts):
        pages = [tuple(prompt[: i + 1]) for i in range(min(len(prompt), num_pages))]
        found = [page for page in pages if page in last_used]
        hits += len(found)
        while len(last_used) + len(pages) - len(found) > num_pages:
            leaves = [p for p in last_used if p not in pages and not any(q[:-1] == p for q in last_used)]
            del last_used[min(leaves, key=lambda p: order(p, last_used, now))]
        last_used |= dict.fromkeys(pages, now)
    return hits


@given(PROMPTS, st.integers(1, 12))
def test_belady_evicts_the_leaf_whose_next_use_is_farthest(prompts: list[list[int]], num_pages: int) -> None:
    def order(page: Path, last_used: dict[Path, int], now: int) -> float:
        later = (t for t in range(now + 1, len(prompts)) if tuple(prompts[t][: len(page)]) == page)
        return -next(later, len(prompts) + 1)

    result = serial(as_pages(prompts), num_pages, "belady")
    assert result.hits == naive_hits(prompts, num_pages, order)
    assert result.hits >= serial(as_pages(prompts), num_pages, "lru").hits


@given(PROMPTS)
def test_without_evictions_every_repeated_page_hits(prompts: list[list[int]]) -> None:
    pages = as_pages(prompts)
    for portion in PORTIONS:
        result = serial(pages, num_unique(pages), "lru", portion)
        assert result.asked == sum(map(len, prompts))
        assert result.hits == result.asked - num_unique(pages)
        assert result.evicted == 0


@pytest.mark.parametrize(("portion", "hits"), [("page", 3), ("tail", 3), ("leaf", 0)])
def test_a_whole_leaf_takes_the_head_of_a_prompt_with_it(portion: Portion, hits: int) -> None:
    prompts = as_pages([[1, 1, 1, 1], [2, 2], [1, 1, 1, 1]])
    assert serial(prompts, 5, "lru", portion).hits == hits


def test_a_prompt_longer_than_the_cache_keeps_its_first_pages() -> None:
    assert serial(as_pages([[1, 2, 3, 4], [1, 2, 3, 4]]), 2).hits == 2


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown eviction policy 'best'"):
        serial([token_bytes([1])], 1, "best")
