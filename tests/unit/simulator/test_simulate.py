"""`radixserve simulate`: predictions follow from the requests, the settings and the costs."""

import json
from pathlib import Path
from typing import Any

import pytest

from radixserve.cli import main
from radixserve.config import EngineConfig
from radixserve.simulator.traces import TraceRequest, read_trace, write_trace
from radixserve.simulator.whatif import read
from tests.property.test_recorded_runs import recorded_engine
from tests.traffic import Traffic


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Six requests, a minute apart: three pairs share two pages."""
    path = tmp_path / "trace.jsonl"
    requests = [TraceRequest(1024 + 100, 20, [i % 3, 10 + i % 3, 100 + i], 60_000.0 * i) for i in range(6)]
    write_trace(path, requests)
    return path


def run(*args: str | Path) -> int:
    """Exit code of `radixserve simulate`."""
    with pytest.raises(SystemExit) as end:
        main(["simulate", *map(str, args)])
    assert isinstance(end.value.code, int)
    return end.value.code


def simulate(capsys: pytest.CaptureFixture[str], *args: str | Path) -> Any:
    assert run(*args, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_hits_and_bounds_of_a_trace(capsys: pytest.CaptureFixture[str], trace: Path) -> None:
    large, small = simulate(capsys, trace, "--num-slots", "10k,1200")["predictions"]
    ideal = 3 * 1024 / (6 * 1124)
    assert large["hit_rate"] == large["optimal_hit_rate"] == large["infinite_hit_rate"] == pytest.approx(ideal)
    assert small["hit_rate"] <= small["optimal_hit_rate"] < ideal
    assert large["evicted_tokens"] == 0 < small["evicted_tokens"]
    assert large["saved_tokens"] == 3 * 1024


def test_times_follow_from_the_cost_model(capsys: pytest.CaptureFixture[str], trace: Path, tmp_path: Path) -> None:
    costs = tmp_path / "costs.json"
    costs.write_text('{"step_s": 0, "token_s": 0.001, "pair_s": 0, "context_s": 0, "source": "test"}')
    (found,) = simulate(capsys, trace, "--num-slots", "10k", "--cost-model", costs)["predictions"]
    assert found["ttft_median_s"] == pytest.approx((1.124 + 0.1) / 2)  # computed whole, or but for the shared pages
    assert found["end_s"] == pytest.approx(300 + 0.1 + 0.019)
    assert found["tokens_per_s"] == pytest.approx(6 * 20 / found["end_s"])


def test_the_cross_product_of_settings(capsys: pytest.CaptureFixture[str], trace: Path) -> None:
    args = ("--num-slots", "2k,50%", "--policy", "lru,slru", "--order", "fcfs,tree", "--page-size", "1,16", "--replicas", "1,2")
    predictions = simulate(capsys, trace, *args)["predictions"]
    assert len({json.dumps(p["setting"]) for p in predictions}) == len(predictions) == 32


def test_replicas_do_not_share(capsys: pytest.CaptureFixture[str], trace: Path) -> None:
    one, four = simulate(capsys, trace, "--num-slots", "10k", "--replicas", "1,4", "--router", "round-robin,random")["predictions"][
        :2
    ]
    assert one["saved_tokens"] == 3 * 1024
    assert four["saved_tokens"] == 0  # a request and the one three places later go to different replicas


def test_requests_that_do_not_fit_are_counted(capsys: pytest.CaptureFixture[str], trace: Path) -> None:
    (found,) = simulate(capsys, trace, "--num-slots", "1000")["predictions"]
    assert found["refused"] == 6


def test_the_optimum_is_of_the_requests_that_are_served(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    large = TraceRequest(5120, 1, list(range(100, 110)), 1.0)
    write_trace(path, [TraceRequest(512, 1, [1], 0.0), large, TraceRequest(512, 1, [1], 2.0)])
    (found,) = simulate(capsys, path, "--num-slots", "600")["predictions"]
    assert found["refused"] == 1
    assert found["hit_rate"] == found["optimal_hit_rate"] == pytest.approx(511 / 6144)


def test_the_optimum_is_of_the_order_in_which_requests_are_served(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Four prefixes asked for in turns, all at once, in a pool for one: the scheduler brings together what shares a prefix."""
    path = tmp_path / "trace.jsonl"
    write_trace(path, [TraceRequest(1536, 1, [turn % 4, 10 + turn % 4, 100 + turn], 0.0) for turn in range(24)])
    args = ("--num-slots", "2048", "--order", "fcfs,prefix,tree", "--policy", "lru,fifo", "--max-running", "1")
    found = simulate(capsys, path, *args)["predictions"]
    assert max(one["hit_rate"] for one in found) > 2 * min(one["hit_rate"] for one in found)
    assert all(one["hit_rate"] <= one["optimal_hit_rate"] for one in found)


def test_more_rows_than_requests_cost_nothing(capsys: pytest.CaptureFixture[str], trace: Path) -> None:
    few, many = (
        simulate(capsys, trace, "--num-slots", "4k", "--max-running", rows)["predictions"][0] for rows in ("6", "999999999")
    )
    assert few["end_s"] == many["end_s"]


def test_an_overloaded_engine_and_extrapolated_times_are_told(
    capsys: pytest.CaptureFixture[str], trace: Path, tmp_path: Path
) -> None:
    costs = tmp_path / "costs.json"
    costs.write_text('{"step_s": 0, "token_s": 1.0, "pair_s": 0, "context_s": 0, "source": "test", "longest": 1000}')
    run(trace, "--num-slots", "10k", "--cost-model", costs)
    out = capsys.readouterr().out
    assert "overloaded: requests came within 300 s" in out
    assert "beyond the 1,000 that were measured" in out
    run(trace, "--num-slots", "10k", "--cost-model", costs, "--speed", "0.01")
    assert "overloaded" not in capsys.readouterr().out


def test_an_empty_file_has_nothing_to_simulate(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert run(tmp_path / "empty", "--serial") == 1
    assert "has no request that was answered" in capsys.readouterr().err


def test_an_export_does_not_overwrite(capsys: pytest.CaptureFixture[str], trace: Path) -> None:
    before = trace.read_bytes()
    assert run(trace, "--export", trace) == 1
    assert "is there already" in capsys.readouterr().err
    assert trace.read_bytes() == before


def test_the_table_and_the_curves(capsys: pytest.CaptureFixture[str], trace: Path, tmp_path: Path) -> None:
    run(trace, "--num-slots", "1200,10k", "--plot", tmp_path / "curves.html")
    out = capsys.readouterr().out
    assert "45.6%" in out
    assert "an infinite cache hits 45.6%" in out
    assert "10,000 slots, 45.6%" in (tmp_path / "curves.html").read_text()


def test_curves_as_a_picture(trace: Path, tmp_path: Path) -> None:
    assert run(trace, "--num-slots", "1200,10k", "--plot", tmp_path / "curves.png") == 0
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_the_serial_table(capsys: pytest.CaptureFixture[str], trace: Path) -> None:
    results = simulate(capsys, trace, "--serial", "--num-slots", "100%")["serial"]
    assert [(r["policy"], r["portion"], r["hits"]) for r in results] == [
        ("lru", "page", 6),
        ("lru", "leaf", 6),
        ("lru", "tail", 6),
        ("belady", "page", 6),
    ]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--num-slots", "many"], "--num-slots has 'many'"),
        (["--policy", "best"], "--policy has 'best': choose among fifo"),
        (["--router", "prefix-ish"], "--router has 'prefix-ish'"),
        (["--speed", "0"], "--speed is 0"),
        (["--speed", "nan"], "--speed is nan"),
        (["--max-running", "0"], "--max-running is 0"),
        (["--num-slots", "10k", "--plot", "curves.gif"], "must end in .png or .html"),
        (["--plot", "/nowhere/curves.html"], "there is no folder /nowhere"),
        (["--export", "/nowhere/trace.jsonl"], "there is no folder /nowhere"),
        (["--serial", "--page-size", "16"], "--serial has no use for --page-size"),
        (["--num-slots", "8", "--page-size", "16"], "less than one page of 16"),
    ],
)
def test_what_cannot_be_is_refused(capsys: pytest.CaptureFixture[str], trace: Path, args: list[str], message: str) -> None:
    assert run(trace, *args) == 1
    assert message in capsys.readouterr().err


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Three requests with a shared prompt, one of another tenant."""
    path = tmp_path / "run.jsonl"
    traffic = Traffic(recorded_engine(EngineConfig(), 4096, path))
    for i, salt in enumerate([None, None, "a"]):
        traffic.send([*([3] * 40), i], 5, salt=salt)
        traffic.run()
    return path


def test_a_recording_with_its_own_settings(capsys: pytest.CaptureFixture[str], recording: Path) -> None:
    run(recording, "--json")
    captured = capsys.readouterr()
    (found,) = json.loads(captured.out)["predictions"]
    assert "replayed 15 recorded steps" in captured.err
    assert found["setting"]["num_slots"] == 4096
    assert found["saved_tokens"] == 40
    assert found["hit_rate"] == found["infinite_hit_rate"] == pytest.approx(40 / 123)


def test_a_recorded_request_keeps_its_priority_and_what_it_was_answered(tmp_path: Path) -> None:
    traffic = Traffic(recorded_engine(EngineConfig(), 4096, tmp_path / "run.jsonl"))
    traffic.send([3] * 40, 5, priority=2, salt="a")
    traffic.run()
    (request,) = read(tmp_path / "run.jsonl").requests
    assert (request.priority, request.prompt_len, request.output_len) == (2, 40, len(traffic.answers["0"]))
    assert request.extra_key.cache_salt not in (None, "a")


def test_an_export_keeps_namespaces_apart(tmp_path: Path) -> None:
    traffic = Traffic(recorded_engine(EngineConfig(), 4096, tmp_path / "run.jsonl"))
    for salt in (None, None, "a"):
        traffic.send([3] * 40, 5, salt=salt)
        traffic.run()
    run(tmp_path / "run.jsonl", "--export", tmp_path / "trace.jsonl")
    first, same, other = (tuple(request.hash_ids) for request in read_trace(tmp_path / "trace.jsonl"))
    assert first == same != other


def test_the_slowest_first_token_is_told_too(capsys: pytest.CaptureFixture[str], trace: Path, tmp_path: Path) -> None:
    costs = tmp_path / "costs.json"
    costs.write_text('{"step_s": 0, "token_s": 0.001, "pair_s": 0, "context_s": 0, "source": "test"}')
    (found,) = simulate(capsys, trace, "--num-slots", "10k", "--cost-model", costs)["predictions"]
    assert found["ttft_p99_s"] == pytest.approx(1.124)


def test_speed_brings_requests_closer(capsys: pytest.CaptureFixture[str], trace: Path) -> None:
    (found,) = simulate(capsys, trace, "--num-slots", "10k", "--speed", "10")["predictions"]
    assert found["arrived_s"] == 30


def test_a_recording_as_a_trace(capsys: pytest.CaptureFixture[str], recording: Path, tmp_path: Path) -> None:
    run(recording, "--export", tmp_path / "trace.jsonl")
    exported = read_trace(tmp_path / "trace.jsonl")
    assert [(r.input_length, r.output_length) for r in exported] == [(41, 5)] * 3
    assert len({tuple(r.hash_ids) for r in exported}) == 3
    assert [r.timestamp for r in exported] == sorted(r.timestamp for r in exported)
