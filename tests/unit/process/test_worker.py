"""The engine's loop: what it sends, and when."""

import pytest

from radixserve.limits import Limits
from radixserve.messages import EngineInfo, EngineInput, EngineOutput, EngineStats, Output
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


class Asleep(Exception):  # noqa: N818
    pass


class Channel:
    """Keeps what is sent; its receiver never gets anything."""

    def __init__(self) -> None:
        self.sent: list[list[EngineOutput]] = []

    def receive(self, *, wait: bool) -> list[EngineInput]:
        if wait:
            raise Asleep
        return []

    def send(self, messages: list[EngineOutput]) -> None:
        self.sent.append(messages)

    def wake(self) -> None:
        pass


def run() -> list[list[EngineOutput]]:
    channel = Channel()
    with pytest.raises(Asleep):
        worker.run(Engine(), channel)  # type: ignore[arg-type]
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
