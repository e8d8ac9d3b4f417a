"""Streams that are all left at once, in the middle: what a server still does for clients that are gone.

A step of the engine makes one token for each running stream. So the tokens that were made after the last one that its client has
read, over the number of streams, are the steps from there until all was freed. The engine's figures are exact once it is idle.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec

from radixserve.bench.client import BenchClient
from radixserve.errors import ConfigError

IDLE_WITHIN_S = 60.0
POLL_S = 0.05


@dataclass(frozen=True)
class Disconnects:
    """What became of `streams` that were left."""

    streams: int
    steps: float
    """From the last token that was read to the last that was made; the mean over the streams."""
    freed: bool
    """Whether every slot was free or evictable in the end."""


async def disconnect_all(client: BenchClient, model: str, streams: int, output_len: int) -> Disconnects:
    """Opens all streams, and leaves them when each has read `output_len` tokens of four times as many. A fast one may end before.

    Raises ConfigError when a stream fails, or the server doesn't become idle.
    """
    before = await _idle(client)
    read = [0] * streams
    all_read = asyncio.Event()

    async def follow(number: int) -> None:
        async with client.stream("/v1/completions", _body(model, number, 4 * output_len)) as reply:
            async for line in reply.aiter_lines():
                if line.startswith("data: {"):
                    read[number] = msgspec.json.decode(line[6:])["usage"]["completion_tokens"]
                    if min(read) >= output_len:
                        all_read.set()

    tasks = [asyncio.create_task(follow(number)) for number in range(streams)]
    waiting = asyncio.create_task(all_read.wait())
    reading: asyncio.Future[list[None]] = asyncio.gather(*tasks)  # done when all have ended, or the first has failed
    both: list[asyncio.Future[Any]] = [reading, waiting]
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    for task in (*tasks, waiting):
        task.cancel()
    failure, *_ = await asyncio.gather(reading, *tasks, waiting, return_exceptions=True)
    if not all_read.is_set():
        raise ConfigError(f"a stream failed before it was left ({failure!r}): lower --streams or --output-len")
    after = await _idle(client, _num_ended(before) + streams)
    return Disconnects(
        streams=streams,
        steps=(after["generated_tokens"] - before["generated_tokens"] - sum(read)) / streams,
        freed=after["free_slots"] + after["evictable_slots"] == after["num_slots"],
    )


async def _idle(client: BenchClient, num_ended: int = 0) -> dict[str, Any]:
    """The engine's figures when nothing waits or runs, and `num_ended` requests have ended: older figures may be idle too."""
    for _ in range(round(IDLE_WITHIN_S / POLL_S)):
        stats: dict[str, Any] = (await client.request("GET", "/server_info")).json()["stats"]
        if stats["num_running"] == 0 == stats["num_waiting"] and _num_ended(stats) >= num_ended:
            return stats
        await asyncio.sleep(POLL_S)
    raise ConfigError(f"the server was not idle for {IDLE_WITHIN_S:g} s: nobody else may use it meanwhile")


def _num_ended(stats: dict[str, Any]) -> int:
    return sum(stats["finished"].values())


def _body(model: str, number: int, max_tokens: int) -> dict[str, Any]:
    usage = {"include_usage": True, "continuous_usage_stats": True}
    own = {"prompt": f"Story number {number}:", "max_tokens": max_tokens, "stream_options": usage}
    return {"model": model, "temperature": 0, "ignore_eos": True, "stream": True} | own
