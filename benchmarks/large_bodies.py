"""What large bodies cost others: a chat of two tokens while several requests of some MB are sent, and the memory that stays.

Run: python benchmarks/large_bodies.py URL PID (of the server's HTTP process)
"""

import asyncio
import sys
import time

import httpx
import psutil

NUM_LARGE = 8
LARGE_BYTES = 7_000_000
PAUSE_S = 0.3
"""Between the large requests and the chat: they are being worked on by then."""
LATER_S = 60


async def chat(client: httpx.AsyncClient) -> float:
    """Seconds of a chat of two tokens."""
    begin = time.perf_counter()
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    (await client.post("/v1/chat/completions", json=body)).raise_for_status()
    return time.perf_counter() - begin


async def measure(url: str, process: psutil.Process) -> None:
    """Prints it."""
    text = "the quick brown fox, jumps over " * (LARGE_BYTES // 32)
    bodies = {
        "text": {"prompt": text},
        "messages": {"messages": [{"role": "user", "content": "Hi"}, {"role": text, "content": "x"}]},
        "token ids": {"prompt": [123] * (LARGE_BYTES // 4)},
    }

    async with httpx.AsyncClient(base_url=url, timeout=600, limits=httpx.Limits(max_connections=None)) as client:
        alone = [await chat(client) for _ in range(3)]
        print(f"chat alone: {min(alone):.3f} s; memory {process.memory_info().rss / 1e6:.0f} MB")
        for name, body in bodies.items():
            path = "/v1/completions" if name == "token ids" else "/tokenize"
            large = [asyncio.create_task(client.post(path, json=body)) for _ in range(NUM_LARGE)]
            await asyncio.sleep(PAUSE_S)
            times: list[float] = []
            while not times or not all(task.done() for task in large):
                times.append(await chat(client))
            statuses = {reply.status_code for reply in await asyncio.gather(*large)}
            peak = process.memory_info().rss / 1e6
            print(f"{NUM_LARGE} of {name}: statuses {statuses}, {len(times)} chats, slowest {max(times):.3f} s; {peak:.0f} MB")
    await asyncio.sleep(LATER_S)
    print(f"{LATER_S} s later: {process.memory_info().rss / 1e6:.0f} MB")


if __name__ == "__main__":
    asyncio.run(measure(sys.argv[1], psutil.Process(int(sys.argv[2]))))
