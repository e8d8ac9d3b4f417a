"""One watch for all viewers, who may be as slow as they like."""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from radixserve.engine.engine import Engine
from radixserve.ipc import CacheNews, GenerateRequest, WatchRequest
from radixserve.sampling_params import SamplingParams
from radixserve.server.cache import feed as cache_feed
from radixserve.server.cache.feed import CacheFeed
from radixserve.server.cache.view import slot_ranges
from radixserve.tokens import token_bytes
from tests.hash_runner import hash_engine
from tests.server.fake_engine import FakeClient, make_service


class LocalClient(FakeClient):
    """An engine in this process, which steps when it is told to."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.engine = engine
        self.watched: list[bool] = []

    def watch(self, on: bool) -> None:
        self.watched.append(on)
        self.engine.receive(WatchRequest(on))
        self.step()

    def serve(self, prompt: list[int]) -> None:
        self.engine.receive(GenerateRequest(str(prompt), token_bytes(prompt), SamplingParams(max_tokens=1)))
        while self.engine.has_work:
            self.step()

    def step(self) -> None:
        for output in self.engine.step():
            if isinstance(output, CacheNews):
                self.on_cache_news(output)  # type: ignore[attr-defined]


def ids(state: dict[int, dict[str, Any]]) -> dict[int, Any]:
    return {number: node["slots"] for number, node in state.items() if node["parent"]}


def apply(state: dict[int, dict[str, Any]], kind: str, data: dict[str, Any]) -> None:
    if kind == "snapshot":
        state.clear()
    for number in data.get("removed", []):
        state.pop(number, None)
    state |= {node["id"]: node for node in data.get("nodes", [])}


def truth(engine: Engine) -> dict[int, Any]:
    return {node.serial: slot_ranges(node.slots.tobytes()) for _, node in engine.cache.walk()}


def make(model: Path) -> tuple[LocalClient, CacheFeed]:
    client = LocalClient(hash_engine(30))
    return client, make_service(model, client).feed()


def test_viewers_share_a_watch_and_the_last_ends_it(tiny_model_dir: Path) -> None:
    async def run() -> None:
        client, feed = make(tiny_model_dir)
        async with aclosing(feed.frames()) as one, aclosing(feed.frames()) as other:
            assert [(await anext(frames))[0] for frames in (one, other)] == ["snapshot", "snapshot"]
            assert client.watched == [True]
        assert client.watched == [True, False]
        assert not client.engine.cache.listeners
        async with feed.mirror() as mirror:
            assert mirror.clock == -1
        assert client.watched == [True, False, True, False]

    asyncio.run(run())


@pytest.mark.parametrize(("limit", "kinds"), [(20_000, ["snapshot", "stats", "change"]), (3, ["snapshot", "stats", "snapshot"])])
def test_a_slow_viewer_gets_one_large_change_or_a_new_snapshot(
    tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch, limit: int, kinds: list[str]
) -> None:
    monkeypatch.setattr(cache_feed, "MAX_GONE", limit)

    async def run() -> None:
        client, feed = make(tiny_model_dir)
        client.serve([1, 2, 3])
        state: dict[int, dict[str, Any]] = {}
        seen = []
        async with aclosing(feed.frames()) as frames:
            for _ in range(2):
                kind, data = await anext(frames)
                seen.append(kind)
                apply(state, kind, data)
            for i in range(20):  # evictions, splits, nodes that come and go between two frames
                client.serve([i % 3, *range(10), i % 7])
            kind, data = await anext(frames)
            seen.append(kind)
            apply(state, kind, data)
        assert seen == kinds
        assert ids(state) == truth(client.engine)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("slots", "runs"), [([], []), ([4], [[4, 4]]), ([4, 5, 6, 2, 9, 8], [[4, 6], [2, 2], [9, 9], [8, 8]]), ([1, 2], [[1, 2]])]
)
def test_slots_as_runs(slots: list[int], runs: list[list[int]]) -> None:
    assert slot_ranges(token_bytes(slots)) == runs
