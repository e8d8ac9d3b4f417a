"""The client with a small engine in a real process."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from radixserve.config import EngineConfig
from radixserve.errors import BusyError, ConfigError, EngineDeadError, InvalidRequestError
from radixserve.ipc import (
    AbortRequest,
    CommandResult,
    EngineInfo,
    EngineInput,
    EngineOutput,
    EngineStats,
    FlushRequest,
    GenerateRequest,
    Output,
    RequestFailed,
)
from radixserve.limits import Limits
from radixserve.process import heartbeat, worker
from radixserve.process.client import EngineClient
from radixserve.sampling_params import SEED_LIMIT, SamplingParams

INFO = EngineInfo("fake", "float32", "cpu", Limits(100, 100, 100, 1), kv_bytes=0, num_threads=1)


class FakeEngine:
    """A token a step for each request: its own seed, so that tests see it. Some prompts make it misbehave."""

    info = INFO

    def __init__(self) -> None:
        self._inbox: list[EngineInput] = []
        self._running: dict[str, tuple[GenerateRequest, int]] = {}

    @property
    def has_work(self) -> bool:
        return bool(self._inbox or self._running)

    def notify(self, wake: Callable[[], None]) -> None:
        pass

    def receive(self, message: EngineInput) -> None:
        self._inbox.append(message)

    def step(self) -> list[EngineOutput]:
        time.sleep(0.001)  # an engine that computes nothing would flood its client
        inbox, self._inbox = self._inbox, []
        outputs: list[EngineOutput] = []
        for message in inbox:
            match message:
                case GenerateRequest(prompt_ids=b"refuse"):
                    outputs.append(RequestFailed(message.rid, "invalid_request", "n is 1: too many", "n"))
                case GenerateRequest(prompt_ids=b"raise"):
                    raise ValueError("a bug in the model")
                case GenerateRequest(prompt_ids=b"exit"):
                    os._exit(3)
                case GenerateRequest():
                    self._running[message.rid] = (message, 0)
                case AbortRequest():
                    self._running.pop(message.rid, None)
                case FlushRequest() if self._running:
                    outputs.append(RequestFailed(message.rid, "busy", f"{len(self._running)} run"))
                case FlushRequest():
                    outputs.append(CommandResult(message.rid, "flushed 0 tokens"))
        return outputs + [self._next(rid) for rid in list(self._running)]

    def _next(self, rid: str) -> Output:
        request, count = self._running[rid]
        done = count + 1 == request.params.max_tokens
        self._running[rid] = (request, count + 1)
        if done:
            del self._running[rid]
        return Output(rid, f"{request.params.seed}", (count,), 1, 0, count + 1, finish_reason="length" if done else None)

    def stats(self) -> EngineStats:
        return EngineStats(num_running=len(self._running))


def fake_main(config: EngineConfig, folder: Path) -> None:
    """Stands in for `worker.main`'s building of an engine; everything else is the worker's own."""

    def build(_: EngineConfig) -> FakeEngine:
        if config.model == "broken":
            raise ConfigError("no model 'broken': choose another")
        if config.model == "bug":
            raise RuntimeError("boom")
        return FakeEngine()

    worker._build = build
    worker.STATS_EVERY_S = 3600.0
    real_main(config, folder)


real_main = worker.main


@pytest.fixture(autouse=True)
def fake_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "main", fake_main)


@contextlib.asynccontextmanager
async def started(model: str = "fake") -> AsyncIterator[EngineClient]:
    client = EngineClient()
    try:
        assert await client.start(EngineConfig(model=model)) == INFO
        yield client
    finally:
        await client.stop()


def ask(prompt: bytes = b"ab", **params: object) -> GenerateRequest:
    return GenerateRequest("user", prompt, SamplingParams(**params))


async def collect(client: EngineClient, *requests: GenerateRequest) -> dict[int, list[Output]]:
    found: dict[int, list[Output]] = {}
    async with aclosing(client.generate(requests)) as events:
        async for number, output in events:
            found.setdefault(number, []).append(output)
    return found


def test_choices_are_numbered_and_seeded() -> None:
    async def scenario() -> None:
        async with started() as client:
            found = await collect(client, ask(n=2, seed=5, max_tokens=3), ask(seed=SEED_LIMIT - 1, n=2, max_tokens=1))
            assert {number: outputs[0].text for number, outputs in found.items()} == {
                0: "5", 1: "6", 2: str(SEED_LIMIT - 1), 3: str(-SEED_LIMIT)
            }  # fmt: skip
            assert [output.token_ids for output in found[1]] == [(0,), (1,), (2,)]
            first, second = await collect(client, ask(max_tokens=1)), await collect(client, ask(max_tokens=1))
            assert first[0][0].text != second[0][0].text  # a random seed each

    asyncio.run(scenario())


def test_a_client_that_is_connected_leaves_nothing_behind_however_it_ends() -> None:
    async def scenario() -> None:
        async with started() as client:
            assert not client._folder.exists()
            assert list(await collect(client, ask())) == [0]

    asyncio.run(scenario())


def test_many_streams_at_once_with_one_user_id() -> None:
    async def scenario() -> None:
        async with started() as client:
            results = await asyncio.gather(*(collect(client, ask(seed=i, max_tokens=20)) for i in range(30)))
            for i, found in enumerate(results):
                assert [output.text for output in found[0]] == [str(i)] * 20

    asyncio.run(scenario())


def test_a_closed_or_cancelled_stream_is_aborted() -> None:
    async def scenario() -> None:
        async with started() as client:
            async with aclosing(client.generate([ask(n=3, max_tokens=None)])) as events:
                await anext(events)
            task = asyncio.create_task(collect(client, ask(max_tokens=None)))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await client.flush() == "flushed 0 tokens"  # applied after the aborts, in order

    asyncio.run(scenario())


def test_refusals_become_exceptions() -> None:
    async def scenario() -> None:
        async with started() as client:
            with pytest.raises(InvalidRequestError, match="n is 1") as caught:
                await collect(client, ask(max_tokens=None), ask(b"refuse"))
            assert caught.value.param == "n"
            async with aclosing(client.generate([ask(max_tokens=None)])) as events:
                await anext(events)
                with pytest.raises(BusyError, match="1 run"):
                    await client.flush()

    asyncio.run(scenario())


@pytest.mark.parametrize(("prompt", "reason"), [(b"raise", "ValueError: a bug in the model"), (b"exit", "exit code 3")])
def test_everybody_hears_of_the_engine_s_death(prompt: bytes, reason: str) -> None:
    async def scenario() -> None:
        async with started() as client:
            others = [asyncio.create_task(collect(client, ask(max_tokens=None))) for _ in range(3)]
            await asyncio.sleep(0)
            for failed in await asyncio.gather(collect(client, ask(prompt)), *others, return_exceptions=True):
                assert isinstance(failed, EngineDeadError)
                assert reason in str(failed)
            assert client.dead.is_set()
            with pytest.raises(EngineDeadError, match=reason):
                await collect(client, ask())

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("model", "kind", "reason"), [("broken", ConfigError, "choose another"), ("bug", EngineDeadError, "RuntimeError: boom")]
)
def test_a_start_that_fails_says_why(model: str, kind: type[Exception], reason: str) -> None:
    async def scenario() -> None:
        with pytest.raises(kind, match=reason):
            async with started(model):
                pass

    asyncio.run(scenario())


def test_failing_open_requests_leaves_the_engine_alive() -> None:
    async def scenario() -> None:
        async with started() as client:
            task = asyncio.create_task(collect(client, ask(max_tokens=None)))
            while await client.refresh() or client.stats.num_running == 0:
                pass
            assert client.fail_open("too late") == 1
            with pytest.raises(Exception, match="too late"):
                await task
            assert await client.flush() == "flushed 0 tokens"

    asyncio.run(scenario())


def test_the_parent_does_not_load_torch() -> None:
    code = "import sys, radixserve.process.client, radixserve.server.app; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": "src"}).returncode == 0


def test_stats_count_all_that_was_sent_and_told_after_a_refresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "PATIENCE_S", 60.0)

    async def scenario() -> None:
        async with started() as client:
            for _ in range(20):
                stream = client.generate([ask(n=3, max_tokens=None)])
                await anext(stream)
                assert (await client.refresh(), client.stats.num_running) == (0.0, 3)
                await stream.aclose()
                assert (await client.read_stats()) == (EngineStats(), 0.0)

    asyncio.run(scenario())


def test_a_stopped_engine_gets_no_more_requests_until_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "EVERY_S", 0.01)

    async def scenario() -> None:
        async with started() as client:
            os.kill(client._process.pid, signal.SIGSTOP)
            earlier = asyncio.create_task(collect(client, ask(max_tokens=2)))
            await asyncio.sleep(0)
            with monkeypatch.context() as impatient:
                impatient.setattr(client, "_timeout_s", 0.2)
                impatient.setattr(heartbeat, "PATIENCE_S", 0.01)
                while client.failure is None:
                    await asyncio.sleep(0.001)
                with pytest.raises(EngineDeadError, match="has not answered for"):
                    await collect(client, ask())
                assert await client.refresh() > 0, "what is known is old"
            assert not client.dead.is_set()
            os.kill(client._process.pid, signal.SIGCONT)
            assert len((await earlier)[0]) == 2
            assert list(await collect(client, ask())) == [0]

    monkeypatch.setattr(heartbeat, "PATIENCE_S", 60.0)
    asyncio.run(scenario())


def test_a_request_that_can_t_be_sent_is_forgotten() -> None:
    async def scenario() -> None:
        async with started() as client:
            with pytest.raises(UnicodeEncodeError):
                await collect(client, ask(stop=("\ud83d",)))
            assert await client.abort(None) == 0
            assert client.fail_open("nobody") == 0
            assert list(await collect(client, ask())) == [0]

    asyncio.run(scenario())
