"""Runs a workload against a server: who asks when.

Closed loop: `max_concurrency` sessions are open at once, and the next starts when one ends. With a request rate, sessions start
at the times of a Poisson process instead, and `max_concurrency` only caps them. A session's turns follow one another at once.
"""

import asyncio
import random
from collections.abc import Callable

from radixserve.bench.client import BenchClient, RequestShape
from radixserve.bench.record import Record
from radixserve.bench.workloads import Session, Workload


async def run_workload(
    client: BenchClient,
    workload: Workload,
    shape: RequestShape,
    *,
    max_concurrency: int,
    request_rate: float | None = None,
    seed: int = 0,
    on_record: Callable[[Record], None] = lambda record: None,
) -> list[Record]:
    """All records, by session and turn. A session ends at its first failure. `request_rate`: sessions a second."""
    gate = asyncio.Semaphore(max_concurrency)
    starts = start_times(len(workload.sessions), request_rate, seed)

    async def run_session(number: int, session: Session) -> list[Record]:
        await asyncio.sleep(starts[number] - client.now_s())
        async with gate:
            return await _ask_turns(client, session, number, shape, on_record)

    client.start_clock()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run_session(number, session)) for number, session in enumerate(workload.sessions)]
    return [record for task in tasks for record in task.result()]


def start_times(count: int, request_rate: float | None, seed: int) -> list[float]:
    """Seconds after the start of the run at which each session may start: all 0 without a rate."""
    if request_rate is None:
        return [0.0] * count
    rng = random.Random(seed)
    times, now_s = [], 0.0
    for _ in range(count):
        times.append(now_s)
        now_s += rng.expovariate(request_rate)
    return times


async def _ask_turns(
    client: BenchClient,
    session: Session,
    number: int,
    shape: RequestShape,
    on_record: Callable[[Record], None],
) -> list[Record]:
    records: list[Record] = []
    for turn, max_tokens in enumerate(turn.max_tokens for turn in session.turns):
        record = await client.ask(session.prompt(records), max_tokens, shape, number, turn)
        on_record(record)
        records.append(record)
        if record.error:
            break
    return records
