"""What an engine's process leaves to the garbage collector: nothing, so no search of everything has to interrupt a step."""

import gc
import subprocess
import sys
from pathlib import Path

from radixserve.config import EngineConfig
from radixserve.ipc import AbortRequest, CacheCommand, FlushRequest
from tests.hash_runner import VOCAB
from tests.property.test_recorded_runs import recorded_engine
from tests.traffic import Traffic


def play(traffic: Traffic, num_requests: int) -> None:
    """Requests that hit, miss, split, evict and end early; then a flush."""
    for number in range(num_requests):
        prompt = [1] * (5 + number % 3) + [number % VOCAB, number * 7 % VOCAB, 3]
        rid = traffic.send(prompt, 4, salt=str(number % 3))
        if number % 7 == 0:
            for _, node in list(traffic.engine.cache.walk())[:1]:
                traffic.engine.receive(CacheCommand(f"evict {number}", "evict", node.serial))
        if number % 5 == 0:
            traffic.engine.receive(AbortRequest(rid))
        for _ in range(3):
            traffic.step()
    traffic.run()
    traffic.engine.receive(FlushRequest("flush"))
    traffic.run()


def test_steps_leave_no_cycles_to_the_garbage_collector(tmp_path: Path) -> None:
    traffic = Traffic(recorded_engine(EngineConfig(), 100, tmp_path / "run"))
    play(traffic, 20)
    gc.collect()
    gc.disable()
    try:
        play(traffic, 100)
        assert traffic.engine.cache.num_evicted > 100
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_old_objects_are_not_searched_again() -> None:
    code = """
import gc
from radixserve.heap import keep_collections_short
keep_collections_short()
assert gc.get_freeze_count() > 1000
full = gc.get_stats()[2]["collections"]
kept = [[] for _ in range(1_000_000)]
assert gc.get_stats()[0]["collections"] > 100
assert gc.get_stats()[2]["collections"] == full
"""
    subprocess.run([sys.executable, "-c", code], check=True)
