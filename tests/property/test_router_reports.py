"""What a replica reports is what its cache holds: every whole page, and no other."""

from hypothesis import given, settings
from hypothesis import strategies as st

from radixserve.cache.prefix_cache import PrefixCache
from radixserve.routing.prompt import PAGE_LEN, Prompt
from radixserve.routing.reporter import Reporter
from radixserve.tokens import SHARED, ExtraKey, token_bytes

NUM_SLOTS = 10 * PAGE_LEN
PARTS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from([1, 3, 40, PAGE_LEN, 100, 200])), min_size=1, max_size=4)


class Router:
    """Takes down what it is told, and finds faults with the order."""

    def __init__(self) -> None:
        self.pages: set[int] = set()
        self.parents: dict[int, int] = {}

    def stored(self, pages: list[int]) -> None:
        for page in pages:
            assert page not in self.pages
            assert self.parents.get(page, page) in self.pages | {page}
            self.pages.add(page)

    def removed(self, pages: list[int]) -> None:
        for page in pages:
            self.pages.remove(page)
            assert all(self.parents.get(other) != page for other in self.pages)

    def flushed(self) -> None:
        self.pages.clear()


KEYS = st.sampled_from([SHARED, ExtraKey(cache_salt="a"), ExtraKey("a", None, 1), ExtraKey("a", "a", 2)])


@given(sent=st.lists(st.tuples(PARTS, KEYS), min_size=1, max_size=20), flush_at=st.integers(0, 30))
@settings(max_examples=100)
def test_reports_are_the_pages_of_the_tree(sent: list[tuple[list[tuple[int, int]], ExtraKey]], flush_at: int) -> None:
    cache, router = PrefixCache(NUM_SLOTS), Router()
    cache.listeners.append(Reporter(router))
    for number, (parts, key) in enumerate(sent):
        tokens = token_bytes([token for token, count in parts for _ in range(count)])[: NUM_SLOTS * 4]
        pages = Prompt.of(tokens, key).pages
        router.parents |= dict(zip(pages[1:], pages[:-1], strict=True))
        if number == flush_at:
            cache.flush()
        lease = cache.acquire(tokens, key)
        cache.extend(lease, len(tokens) // 4)
        for end in (len(tokens) // 8, len(tokens) // 4):
            if end > lease.cached_len:
                cache.publish(lease, tokens, end)
        cache.release(lease)
        assert router.pages == pages_of(cache)


def test_a_router_knows_an_adapter_by_its_name_and_forgets_what_an_earlier_load_had() -> None:
    cache, router = PrefixCache(NUM_SLOTS), Router()
    cache.listeners.append(Reporter(router))
    tokens = token_bytes(list(range(2 * PAGE_LEN)))
    for load in (1, 2):
        lease = cache.acquire(tokens, ExtraKey("sql", None, load))
        cache.extend(lease, 2 * PAGE_LEN)
        cache.publish(lease, tokens, 2 * PAGE_LEN)
        cache.release(lease)
        assert router.pages == set(Prompt.of(tokens, ExtraKey("sql")).pages)  # as a router sees a request, which names no load
        for root in list(cache.tree.roots.values()):  # as unloading does
            for child in list(root.children.values()):
                cache.evict_below(child)
        assert router.pages == set()


def pages_of(cache: PrefixCache) -> set[int]:
    found: set[int] = set()
    for extra_key, root in cache.tree.roots.items():
        paths = [(child, b"") for child in root.children.values()]
        while paths:
            node, above = paths.pop()
            found |= set(Prompt.of(above + node.key, extra_key).pages)
            paths += [(child, above + node.key) for child in node.children.values()]
    return found
