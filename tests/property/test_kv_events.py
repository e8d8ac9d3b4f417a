"""Whoever follows the KV events holds exactly the pages of the tree, and may look at any moment: parents come before children."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from radixserve.ipc import CacheCommand, FlushRequest, GenerateRequest, LoadAdapter, UnloadAdapter
from radixserve.observe.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch
from radixserve.observe.observer import Observer
from radixserve.sampling_params import SamplingParams
from radixserve.tokens import token_bytes
from tests.hash_runner import hash_engine

Page = tuple[int, ...]


class Subscriber:
    """Knows of a page its parent and its tokens, as a router does."""

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.pages: dict[int, tuple[int | None, Page]] = {}

    def take(self, batch: EventBatch) -> None:
        wire = msgspec.msgpack.encode(batch)
        assert isinstance(msgspec.msgpack.decode(wire)[1][0][0], str), "an event begins with its name"
        for event in msgspec.msgpack.decode(wire, type=EventBatch).events:
            match event:
                case BlockStored():
                    assert event.block_size == self.page_size
                    above = event.parent_block_hash
                    for number, page_hash in enumerate(event.block_hashes):
                        assert above is None or above in self.pages
                        assert page_hash not in self.pages
                        self.pages[page_hash] = above, tuple(event.token_ids[number * self.page_size :][: self.page_size])
                        above = page_hash
                case BlockRemoved():
                    for page_hash in event.block_hashes:
                        del self.pages[page_hash]
                        assert all(above != page_hash for above, _ in self.pages.values())
                case AllBlocksCleared():
                    self.pages.clear()

    def paths(self) -> list[tuple[Page, ...]]:
        """Every page with all before it."""
        return sorted(self._path(page_hash) for page_hash in self.pages)

    def _path(self, page_hash: int) -> tuple[Page, ...]:
        above, page = self.pages[page_hash]
        return (page,) if above is None else (*self._path(above), page)


SENT = st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=12), st.integers(1, 4), st.sampled_from([None, "a"]))


@given(requests=st.lists(SENT, min_size=1, max_size=12), page_size=st.sampled_from([1, 2, 4]), num_pages=st.integers(8, 16))
@settings(max_examples=60)
def test_a_subscriber_holds_exactly_the_pages_of_the_tree(
    requests: list[tuple[list[int], int, str | None]], page_size: int, num_pages: int
) -> None:
    engine = hash_engine(page_size * num_pages, page_size)
    engine.cache.evictor.least_tail = 2
    subscriber = Subscriber(page_size)
    engine.observer = Observer(engine.scheduler, "lru", subscriber.take)
    for number, (prompt, max_tokens, salt) in enumerate(requests):
        params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        engine.receive(GenerateRequest(str(number), token_bytes(prompt), params, cache_salt=salt))
        if number % 3 == 2:
            engine.receive(CacheCommand("evict", "evict"))
        engine.step()
        assert subscriber.paths() == pages_of(engine, page_size)
    while engine.has_work:
        engine.step()
        assert subscriber.paths() == pages_of(engine, page_size)
    engine.receive(FlushRequest("flush"))
    engine.step()
    assert subscriber.pages == {}


def test_pages_of_an_adapter_name_its_load() -> None:
    engine = hash_engine(100, 2)
    batches: list[EventBatch] = []
    engine.observer = Observer(engine.scheduler, "lru", batches.append)
    params = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True)
    for load in (None, 1, 2):
        if load is not None:
            engine.receive(LoadAdapter("load", "sql", "/sql"))
        engine.receive(GenerateRequest("r", token_bytes([1, 2, 3]), params, adapter=load and "sql"))
        engine.step()
        if load is not None:
            engine.receive(UnloadAdapter("unload", "sql"))
            engine.step()
    events = [event for batch in batches for event in batch.events]
    stored = [event for event in events if isinstance(event, BlockStored)]
    assert [event.lora_id for event in stored] == [None, 1, 2]
    assert len({event.block_hashes[0] for event in stored}) == 3
    assert [event.block_hashes for event in events if isinstance(event, BlockRemoved)] == [
        event.block_hashes for event in stored[1:]
    ]


def pages_of(engine, page_size: int) -> list[tuple[Page, ...]]:  # type: ignore[no-untyped-def]
    found = []
    for root in engine.cache.tree.roots.values():
        stack = [(child, ()) for child in root.children.values()]
        while stack:
            node, above = stack.pop()
            for start in range(0, node.num_tokens, page_size):
                ids = memoryview(node.key).cast("i")[start : start + page_size]
                above = (*above, tuple(ids))
                found.append(above)
            stack += [(child, above) for child in node.children.values()]
    return sorted(found)
