"""Who lives, by a state that may be silent for a while or for ever. Ray is played here."""

import asyncio
from collections.abc import Generator, Sequence

import pytest
from ray.exceptions import RayActorError

from radixserve.ipc import EngineInfo, EngineStats
from radixserve.limits import Limits
from radixserve.replicas import members
from radixserve.replicas.members import Members
from radixserve.replicas.state import Member

INFO = EngineInfo("fake", "float32", "cpu", Limits(50, 100, 100, 1), kv_bytes=0, num_threads=1)
Answer = Sequence[str] | Exception


class FakeState:
    """Gives `answers` one by one, the last for ever."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)

    async def ask(self, method: str) -> list[Member]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return [Member(name, INFO, EngineStats()) for name in answer]


class FakeHandle:
    """`alive`: whether a replica answers."""

    def __init__(self, *, alive: bool) -> None:
        self.alive = alive
        self.num_pings = 0

    @property
    def ping(self) -> "FakeHandle":
        return self

    def remote(self) -> "FakeHandle":
        self.num_pings += 1
        return self

    def __await__(self) -> Generator[None, None, None]:
        yield
        if not self.alive:
            raise RayActorError

    def cancel(self) -> None:
        pass


def members_on(*answers: Answer, handle: FakeHandle | None = None) -> Members:
    return Members(handle or FakeHandle(alive=False), FakeState(*answers))  # type: ignore[arg-type]


def test_a_replica_is_gone_when_it_was_missing_thrice() -> None:
    async def run() -> list[tuple[list[str], bool]]:
        found = members_on(["a"], [], [], ["a"], [], ["b"], [])
        seen = []
        for _ in range(7):
            await found.look()
            seen.append((list(found.replicas), found.failure is None))
        return seen

    assert asyncio.run(run()) == [(["a"], True)] * 5 + [(["a", "b"], True), (["b"], True)]


def test_a_silent_cluster_fails_requests_and_then_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "POLL_S", 0.0)
    monkeypatch.setattr(members, "SILENT_S", 0.0)
    monkeypatch.setattr(members, "LOST_S", 0.05)

    async def run() -> Members:
        found = members_on(["a"], RayActorError())
        await found.look()
        assert found.failure is None
        await found.follow()
        return found

    found = asyncio.run(run())
    assert found.dead.is_set()
    assert "the Ray cluster doesn't answer" in str(found.failure)
    assert list(found.replicas) == ["a"]


def test_a_silent_state_is_no_failure_while_a_replica_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "POLL_S", 0.0)
    monkeypatch.setattr(members, "SILENT_S", 0.0)
    monkeypatch.setattr(members, "LOST_S", 0.05)
    handle = FakeHandle(alive=True)

    async def run() -> Members:
        found = members_on(["a"], RayActorError(), handle=handle)
        await found.look()
        following = asyncio.create_task(found.follow())
        while handle.num_pings < 3:
            await asyncio.sleep(0)
            assert found.failure is None
        handle.alive = False
        await following
        return found

    found = asyncio.run(run())
    assert found.dead.is_set()
    assert found.failure is not None


def test_a_process_that_was_stopped_asks_again_before_it_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "POLL_S", 0.0)

    async def run() -> Members:
        loop = asyncio.get_running_loop()
        found = members_on(["a"], RayActorError(), ["a", "b"])
        await found.look()
        stopped_s = 0.0

        def time_s() -> float:
            nonlocal stopped_s
            stopped_s += 2 * members.LOST_S
            return stopped_s

        monkeypatch.setattr(loop, "time", time_s)
        following = asyncio.create_task(found.follow())
        while "b" not in found.replicas and not following.done():
            await asyncio.sleep(0)
        following.cancel()
        return found

    found = asyncio.run(run())
    assert not found.dead.is_set()
    assert list(found.replicas) == ["a", "b"]


def test_a_state_that_comes_back_is_heard_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "POLL_S", 0.0)

    async def run() -> Members:
        found = members_on(["a"], RayActorError(), RayActorError(), ["a", "b"])
        following = asyncio.create_task(found.follow())
        while "b" not in found.replicas:
            await asyncio.sleep(0)
        following.cancel()
        return found

    found = asyncio.run(run())
    assert found.failure is None
    assert not found.dead.is_set()
