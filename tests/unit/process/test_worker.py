"""The engine's loop: what it sends, and when."""

import pytest

from radixserve.ipc import EngineInfo, EngineInput, EngineOutput, EngineStats, Output, Sync, Synced
from radixserve.limits import Limits
from radixserve.process import worker


class Engine:
    """Has work for 1,000 steps."""

    info = EngineInfo("fake", "float32", "cpu", Limits(100, 100, 100, 1), kv_bytes=0, num_threads=1)
    num_steps = 0

    @property
    def has_work(self) -> bool:
        return self.num_steps < 1000

    def notify(self, wake: object) -> None:
        pass

    def receive(self, message: EngineInput) -> None:
        raise AssertionError("nothing was sent")

    def step(self) -> list[EngineOutput]:
        self.num_steps += 1
        return [Output("0", "a", (1,), 4, 0, self.num_steps)]

    def stats(self) -> EngineStats:
        return EngineStats(num_steps=self.num_steps)


class Idle(Engine):
    """Nothing to do, but something to tell: a change that no step made."""

    has_work = False

    def step(self) -> list[EngineOutput]:
        raise AssertionError("there is nothing to do")

    def stats(self) -> EngineStats:
        self.num_steps += 1
        return EngineStats(num_nodes=self.num_steps)


class Asleep(Exception):  # noqa: N818
    pass


class Channel:
    """Keeps what is sent; its receiver gets `inputs`, then nothing."""

    def __init__(self, *inputs: EngineInput | Sync) -> None:
        self.inputs = list(inputs)
        self.sent: list[list[EngineOutput]] = []

    def receive(self, *, wait: bool) -> list[EngineInput | Sync]:
        if self.inputs:
            return [self.inputs.pop(0)]
        if wait:
            raise Asleep
        return []

    def send(self, messages: list[EngineOutput]) -> None:
        self.sent.append(messages)

    def wake(self) -> None:
        pass


def run(engine: Engine | None = None, *inputs: EngineInput | Sync) -> list[list[EngineOutput]]:
    channel = Channel(*inputs)
    with pytest.raises(Asleep):
        worker.run(engine or Engine(), channel)  # type: ignore[arg-type]
    return channel.sent


def test_stats_are_exact_when_the_engine_sleeps_and_rare_while_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "STATS_EVERY_S", 3600.0)
    sent = run()
    assert len(sent) == 1000
    told = [message for messages in sent for message in messages if isinstance(message, EngineStats)]
    assert [stats.num_steps for stats in told] == [1, 1000]
    assert sent[-1][-1] == told[-1], "with the last output, not after it"


def test_a_busy_engine_tells_its_stats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "STATS_EVERY_S", 0.0)
    assert all(isinstance(messages[-1], EngineStats) for messages in run())


def test_whoever_syncs_is_told_the_stats_before_and_no_step_is_made_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "STATS_EVERY_S", 3600.0)
    assert run(Idle(), Sync("a"), Sync("b")) == [
        [EngineStats(num_nodes=2), Synced("a")],
        [EngineStats(num_nodes=3), Synced("b")],
    ]
    busy = run(Engine(), Sync("a"), Sync("b"))
    assert [[type(message) for message in messages] for messages in busy[:3]] == [
        [Output, EngineStats, Synced],
        [Output, EngineStats, Synced],
        [Output],
    ]
