"""The wire: order, batching, and what happens when the other end is missing."""

import asyncio
import gc
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from radixserve.ipc import AbortRequest, EngineStats, GenerateRequest, Output, RequestFailed
from radixserve.process.channel import ClientEnd, EngineEnd, make_folder
from radixserve.sampling_params import SamplingParams


@pytest.fixture
def folder() -> Iterator[Path]:
    folder = make_folder()
    yield folder
    shutil.rmtree(folder)


def test_only_this_user_can_enter_the_folder(folder: Path) -> None:
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_messages_arrive_whole_and_in_order(folder: Path) -> None:
    request = GenerateRequest("1", b"\x01\0\0\0", SamplingParams(logit_bias={3: 1.5}, stop=("x",)), cache_salt="s")
    output = Output("1", "é", (3,), 1, 0, 1, finish_reason="stop", stop_reason="x")

    async def talk() -> tuple[list[object], list[object]]:
        client = ClientEnd(folder)
        engine = EngineEnd(folder)
        client.wait_connected()
        client.send([request, AbortRequest("1")])
        client.send([AbortRequest("2")])
        heard = await asyncio.to_thread(engine.receive, wait=True)
        while len(heard) < 3:
            heard += await asyncio.to_thread(engine.receive, wait=True)
        assert engine.receive(wait=False) == []
        engine.send([output, EngineStats(num_steps=2, finished={"stop": 1})])
        answer = await client.receive()
        engine.send([RequestFailed("2", "internal", "gone")])
        engine.close()
        answer += await client.drain(1000)
        client.close()
        return heard, answer

    heard, answer = asyncio.run(talk())
    assert heard == [request, AbortRequest("1"), AbortRequest("2")]
    assert answer == [output, EngineStats(num_steps=2, finished={"stop": 1}), RequestFailed("2", "internal", "gone")]


def test_an_engine_that_waits_for_messages_can_be_wakened(folder: Path) -> None:
    engine = EngineEnd(folder)
    for _ in range(70_000):  # more than a pipe holds, while the engine is too busy to wait
        engine.wake()
    assert engine.receive(wait=True) == []
    engine.close()


def test_a_wake_after_the_close_writes_nowhere(folder: Path, tmp_path: Path) -> None:
    engine = EngineEnd(folder)
    engine.close()
    others = [(tmp_path / str(number)).open("wb") for number in range(8)]  # files that take the pipe's numbers
    engine.wake()
    for file in others:
        file.close()
        assert not Path(file.name).read_bytes()


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_an_end_that_was_never_closed_is_collected(folder: Path) -> None:
    engine = EngineEnd(folder)
    engine.send([EngineStats()])  # which nobody is there to read
    del engine
    gc.collect()


def test_sending_to_an_engine_that_is_gone_does_not_block(folder: Path) -> None:
    async def talk() -> None:
        client = ClientEnd(folder)
        engine = EngineEnd(folder)
        client.wait_connected()
        client.send([AbortRequest("1")])
        await asyncio.to_thread(engine.receive, wait=True)
        engine.close()
        for _ in range(100):
            client.send([AbortRequest("1")])
        client.close()

    asyncio.run(talk())
