"""Whoever asks an engine hears its answer, its end, or nothing any more; and none of them harms the others."""

import asyncio
from collections.abc import Callable

import pytest

from radixserve.ipc import Sync
from radixserve.process import heartbeat
from radixserve.process.heartbeat import Heartbeat


@pytest.mark.parametrize("news", [lambda heart: heart.synced("0"), Heartbeat.end], ids=["answer", "end"])
def test_who_leaves_in_the_moment_of_the_answer_is_passed_over(news: Callable[[Heartbeat], None]) -> None:
    async def scenario() -> None:
        sent: list[Sync] = []
        heart = Heartbeat(sent.append)
        asking = asyncio.create_task(heart.refresh())
        await asyncio.sleep(0)
        assert sent == [Sync("0")]
        asking.cancel()
        news(heart)
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(scenario())


def test_an_engine_owes_an_answer_from_the_question_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "EVERY_S", 3600.0)

    async def scenario() -> None:
        heart = Heartbeat(lambda sync: None)
        assert heart.silent_s == 0.0
        beating = asyncio.create_task(heart.run())
        await asyncio.sleep(0)
        assert heart.silent_s > 0.0
        heart.synced("0")
        await asyncio.sleep(0)
        assert heart.silent_s == 0.0
        heart.end()
        beating.cancel()
        assert await heart.refresh() > 0.0, "the dead tell nothing new"

    asyncio.run(scenario())


def test_an_engine_that_could_not_be_asked_owes_no_answer() -> None:
    def fail(sync: Sync) -> None:
        raise OSError("no way to send")

    async def scenario() -> None:
        heart = Heartbeat(fail)
        with pytest.raises(OSError, match="no way to send"):
            await heart.run()
        assert heart.silent_s == 0.0

    asyncio.run(scenario())
