"""Replicas as one backend: what happens to a request when its replica fails, and what is asked of all. Ray is played here."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from typing import Any

import msgspec
import pytest
from ray.exceptions import RayActorError

from radixserve.config import EngineConfig
from radixserve.errors import BusyError, EngineDeadError, InvalidRequestError, RadixServeError
from radixserve.ipc import EngineInfo, EngineStats, GenerateRequest, Output, RequestFailed
from radixserve.limits import Limits
from radixserve.observe.metrics import Metrics
from radixserve.replicas import members
from radixserve.replicas.fleet import MAX_ATTEMPTS, Fleet
from radixserve.replicas.state import Member
from radixserve.sampling_params import SamplingParams

Script = Iterable[Output | RequestFailed | Exception]

INFO = EngineInfo("fake", "float32", "cpu", Limits(50, 100, 100, 1), kv_bytes=0, num_threads=1)
LOST = RayActorError()
REQUEST = GenerateRequest("", b"prompt__", SamplingParams(max_tokens=2))


def output(count: int, *, last: bool = False) -> Output:
    return Output("", "ab"[count - 1], (count,), 2, 0, count, finish_reason="length" if last else None)


ANSWER = [output(1), output(2, last=True)]


class FakeRay:
    """A handle whose replicas play `scripts`, one a request."""

    def __init__(self, *scripts: Script, names: Iterable[str] = ("x", "y")) -> None:
        self.scripts = list(scripts)
        self.names = list(names)
        self.draining: set[str] = set()
        self.told: list[tuple[str, ...]] = []
        self.sent: list[GenerateRequest] = []
        self.asked: list[tuple[Any, ...]] = []
        self.num_cancelled = 0
        self.answers: dict[str, Any] = {}
        """To what is asked of a replica, by its name."""

    def options(self, stream: bool) -> "FakeRay":
        return self

    @property
    def generate(self) -> "Remote":
        return Remote(self._generate)

    @property
    def ask(self) -> "Remote":
        return Remote(self._ask)

    def _generate(self, request: GenerateRequest) -> "FakeStream":
        self.sent.append(request)
        return FakeStream(self, self.scripts.pop(0))

    async def _ask(self, name: str, method: str, *args: Any) -> Any:
        self.asked.append((name, method, *args))
        if isinstance(answer := self.answers[name], Exception):
            raise answer
        return answer


class Remote:
    def __init__(self, call: Callable[..., Any]) -> None:
        self.remote = call


class FakeStream:
    """Events of a script."""

    def __init__(self, ray: FakeRay, script: Script) -> None:
        self.ray = ray
        self.script = script
        self.done = False

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        for event in self.script:
            if isinstance(event, Exception):
                raise event
            yield msgspec.msgpack.encode((0, event))
        if self.script is ENDLESS:
            await asyncio.Event().wait()
        self.done = True

    def cancel(self) -> None:
        self.ray.num_cancelled += not self.done


ENDLESS = [output(1)]
"""Stops answering after a token."""


class FakeState:
    """Has the replicas of a FakeRay as members."""

    def __init__(self, ray: FakeRay) -> None:
        self.ray = ray

    async def ask(self, method: str) -> list[Member]:
        assert method == "members"
        stats = EngineStats(num_running=1, prompt_tokens=10, finished={"stop": 2})
        return [Member(name, INFO, stats, draining=name in self.ray.draining) for name in self.ray.names]

    def tell(self, method: str, *args: str) -> None:
        self.ray.told.append((method, *args))


@contextlib.asynccontextmanager
async def fleet_on(ray: FakeRay) -> AsyncIterator[Fleet]:
    async def is_running(_: Fleet) -> bool:
        return True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Fleet, "_is_running", is_running)
        fleet = Fleet(ray, FakeState(ray), "app", lambda: None)  # type: ignore[arg-type]
        await fleet.start(EngineConfig())
        try:
            yield fleet
        finally:
            await fleet.stop()


def answer(ray: FakeRay, *requests: GenerateRequest) -> list[tuple[int, Output]]:
    async def run() -> list[tuple[int, Output]]:
        async with fleet_on(ray) as fleet:
            return [event async for event in fleet.generate(requests)]

    return asyncio.run(run())


def test_a_request_that_was_lost_before_its_first_token_is_sent_again() -> None:
    ray = FakeRay([LOST], [EngineDeadError("killed")], ANSWER)
    assert [out.text for _, out in answer(ray, REQUEST)] == ["a", "b"]
    assert len(ray.sent) == 3
    first, second, third = [request.rid for request in ray.sent]
    assert len({first, second, third}) == 3  # what a lost replica still says of its attempt is not about the next
    assert ray.told == [("ended", first), ("ended", second), ("started", third), ("ended", third)]


def test_it_is_not_sent_for_ever() -> None:
    ray = FakeRay(*[[LOST]] * MAX_ATTEMPTS)
    with pytest.raises(EngineDeadError, match="the replica that ran this request is gone"):
        answer(ray, REQUEST)
    assert ray.scripts == []


def test_after_its_first_token_it_is_an_error() -> None:
    ray = FakeRay([output(1), LOST])

    async def run() -> str:
        async with fleet_on(ray) as fleet:
            events = fleet.generate([REQUEST])
            _, first = await anext(events)
            with pytest.raises(EngineDeadError):
                await anext(events)
        return first.text

    assert asyncio.run(run()) == "a"
    assert len(ray.sent) == 1


@pytest.mark.parametrize("error", [InvalidRequestError("n is 1", param="n", code="c"), BusyError("busy"), RadixServeError("bug")])
def test_what_a_replica_refuses_is_refused_in_its_words(error: RadixServeError) -> None:
    with pytest.raises(type(error)) as caught:
        answer(FakeRay([RequestFailed.of("", error)]), REQUEST)
    assert str(caught.value) == str(error)
    assert getattr(caught.value, "param", None) == getattr(error, "param", None)
    assert getattr(caught.value, "code", None) == getattr(error, "code", None)


def test_each_prompt_goes_its_own_way_and_choices_are_numbered_through() -> None:
    ray = FakeRay(ANSWER, ANSWER)
    second = GenerateRequest("", b"other___", SamplingParams(max_tokens=2))
    events = answer(ray, REQUEST, second)
    assert sorted((number, out.text) for number, out in events) == [(0, "a"), (0, "b"), (1, "a"), (1, "b")]
    assert [request.prompt_ids for request in ray.sent] == [REQUEST.prompt_ids, second.prompt_ids]
    assert len({request.rid for request in ray.sent}) == 2


def test_who_stops_listening_cancels_what_is_under_way() -> None:
    ray = FakeRay(ENDLESS)

    async def run() -> None:
        async with fleet_on(ray) as fleet, contextlib.aclosing(fleet.generate([REQUEST])) as events:
            await anext(events)

    asyncio.run(run())
    assert ray.num_cancelled == 1
    assert ray.told[-1] == ("ended", ray.sent[0].rid)


def test_a_shutdown_ends_open_requests_with_its_reason() -> None:
    async def run() -> None:
        async with fleet_on(FakeRay(ENDLESS)) as fleet:
            events = fleet.generate([REQUEST])
            await anext(events)
            assert fleet.fail_open("shutting down") == 1
            with pytest.raises(RadixServeError, match="shutting down"):
                await anext(events)

    asyncio.run(run())


def test_without_a_living_replica_requests_fail_at_once_and_health_says_so() -> None:
    async def run() -> None:
        async with fleet_on(FakeRay()) as fleet:
            fleet.replicas.clear()
            assert fleet.failure is not None
            with pytest.raises(EngineDeadError, match="no replica lives"):
                await anext(fleet.generate([REQUEST]))

    asyncio.run(run())


def test_what_is_asked_of_all_is_put_together() -> None:
    ray = FakeRay()

    async def run() -> None:
        async with fleet_on(ray) as fleet:
            ray.answers = {"x": 2, "y": 1}
            assert await fleet.abort({"id"}) == 3
            ray.answers = {"x": "flushed 1 tokens", "y": "flushed 2 tokens"}
            assert await fleet.flush() == "x: flushed 1 tokens; y: flushed 2 tokens"
            ray.answers["y"] = RequestFailed.of("", BusyError("1 requests run"))
            with pytest.raises(BusyError, match="replica y: 1 requests run"):
                await fleet.flush()
            assert (fleet.stats.num_running, fleet.stats.prompt_tokens, fleet.stats.finished) == (2, 20, {"stop": 4})
            value = Metrics(fleet.collector).registry.get_sample_value
            assert value("radixserve_replicas") == 2
            assert value("radixserve_running_requests", {"replica": "x"}) == 1
            assert value("radixserve_requests_total", {"replica": "y", "finish_reason": "stop"}) == 2

    asyncio.run(run())
    assert ray.asked[:2] == [("x", "abort", {"id"}), ("y", "abort", {"id"})]


def test_stats_are_read_at_all_replicas_and_one_that_does_not_answer_grows_old() -> None:
    ray = FakeRay()

    async def run() -> None:
        async with fleet_on(ray) as fleet:
            ray.answers = {"x": (EngineStats(num_running=5), 0.0), "y": (EngineStats(num_running=6), 1.5)}
            assert (await fleet.refresh(), fleet.stats.num_running) == (1.5, 11)
            ray.answers = {"x": (EngineStats(num_running=7), 0.0), "y": RayActorError()}
            assert await fleet.refresh() >= 1.5
            assert fleet.stats.num_running == 13

    asyncio.run(run())


def test_what_is_asked_of_all_passes_over_those_that_leave_or_are_gone() -> None:
    ray = FakeRay(names=("x", "y", "z"))
    ray.draining = {"z"}
    ray.answers = {"x": 1, "y": LOST, "z": 5}

    async def run() -> None:
        async with fleet_on(ray) as fleet:
            assert await fleet.abort(None) == 1
            ray.answers["x"] = LOST
            with pytest.raises(EngineDeadError, match="no replica answers"):
                await fleet.flush()

    asyncio.run(run())


def test_members_may_change_while_they_are_asked() -> None:
    ray = FakeRay()
    ray.answers = {"x": "flushed", "y": "flushed"}

    async def run() -> str:
        async with fleet_on(ray) as fleet:
            flushing = asyncio.create_task(fleet.flush())
            await asyncio.sleep(0)  # both are asked
            ray.names = ["y"]
            for _ in range(members.MISSED_LOOKS):
                await fleet._members.look()
            return await flushing

    assert asyncio.run(run()) == "x: flushed; y: flushed"


def test_what_later_replicas_would_not_know_is_refused() -> None:
    async def run() -> None:
        async with fleet_on(FakeRay()) as fleet:
            for work in (fleet.update_weights("m"), fleet.load_adapter("a", "b"), fleet.unload_adapter("a")):
                with pytest.raises(InvalidRequestError, match="start the server again"):
                    await work

    asyncio.run(run())


def test_a_replica_that_is_gone_is_forgotten_and_says_so() -> None:
    ray = FakeRay()

    async def run() -> None:
        async with fleet_on(ray) as fleet:
            gone = fleet.replicas["x"]
            ray.names = ["y", "z"]
            for _ in range(members.MISSED_LOOKS):
                await fleet._members.look()
            assert list(fleet.replicas) == ["y", "z"]
            assert gone.dead.is_set()
            assert gone.failure is not None

    asyncio.run(run())
