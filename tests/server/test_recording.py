"""A server that records: what it did can be done again without its model, also after a kill."""

import random
import re
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from radixserve.simulator.options import SimulateOptions
from radixserve.simulator.recordings import Recording
from radixserve.simulator.replay import Replay
from radixserve.simulator.whatif import WhatIf, read
from tests.server.running import running

CHAT = [{"role": "user", "content": "Why is the sky blue?"}]


def test_a_recorded_server_run_replays_exactly(tmp_path: Path, tiny_model_dir: Path) -> None:
    path = tmp_path / "run.jsonl"
    with running(tmp_path, tiny_model_dir, num_slots=512, record=str(path)) as server:
        for max_tokens in (4, 9):
            reply = server.post("/v1/chat/completions", messages=CHAT, max_tokens=max_tokens, n=2)
            assert reply.status_code == 200
        server.wait_idle()
        server.post("/flush_cache")
        server.post("/v1/completions", prompt="sky" * 100, max_tokens=8)
        server.post("/v1/completions", prompt="sea" * 100, max_tokens=8)
        live = server.wait_idle()
    assert "sky" not in path.read_text()
    replay = Replay(Recording(path))
    replay.run()
    simulated = replay.engine.stats()
    for figure in ("num_steps", "cached_tokens", "computed_tokens", "evicted_tokens", "finished", "free_slots", "num_nodes"):
        assert getattr(simulated, figure) == live[figure]
    assert simulated.evicted_tokens > 0
    assert simulated.cached_tokens > 0


def test_gauges_of_other_pools_are_what_a_simulation_of_the_same_run_gives(tmp_path: Path, tiny_model_dir: Path) -> None:
    path, draw = tmp_path / "run.jsonl", random.Random(5)
    talks = [f"{number}: a talk" for number in range(32)]
    with running(tmp_path, tiny_model_dir, num_slots=400, record=str(path)) as server:
        for _ in range(80):
            number = min(int(draw.expovariate(0.1)), len(talks) - 1)
            talks[number] += " goes on and on" if len(talks[number]) < 60 else " again"
            server.post("/v1/completions", prompt=talks[number], max_tokens=2)
        server.wait_idle()
        told = dict(re.findall(r'estimated_hit_rate\{pool="(\w+)"\} (\S+)', httpx.get(f"{server.url}/metrics").text))
    subject = read(path)
    subject.requests = [replace(request, follows=None) for request in subject.requests]  # all in the order in which they came
    same, double = WhatIf(subject, SimulateOptions(num_slots="400,800", speed=0.01)).predictions(lambda: None)
    assert same.hit_rate < double.hit_rate - 0.05 < double.infinite_hit_rate
    assert float(told["1x"]) == pytest.approx(same.hit_rate)
    assert float(told["2x"]) == pytest.approx(double.hit_rate, abs=0.02)
    assert float(told["infinite"]) == pytest.approx(double.infinite_hit_rate, abs=0.02)


def test_a_broken_tail_is_left_out_with_a_warning(tmp_path: Path, tiny_model_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "run.jsonl"
    with running(tmp_path, tiny_model_dir, num_slots=512, record=str(path)) as server:
        server.post("/v1/completions", prompt="sky", max_tokens=8)
        server.wait_idle()
    path.write_bytes(path.read_bytes()[:-20])
    recording = Recording(path)
    replay = Replay(recording)
    replay.run()
    assert len(list(recording.steps())) == 7
    assert [record.getMessage().partition(": ")[2][:23] for record in caplog.records] == ["the last line is broken"]
    assert replay.num_steps == 7
