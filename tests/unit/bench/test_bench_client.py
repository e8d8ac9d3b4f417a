"""The HTTP client, the load and the whole of `bench serve` against a stub server."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from radixserve.bench.client import BenchClient, RequestShape
from radixserve.bench.load import run_workload, start_times
from radixserve.bench.options import ServeBenchOptions
from radixserve.bench.record import Record
from radixserve.bench.serve import run
from radixserve.bench.workloads import ChatSession, Turn, Workload
from radixserve.errors import ConfigError
from radixserve.tokens import token_bytes
from tests.tiny_models import make_tiny_model
from tests.unit.bench.stub_server import Stub, serving


def user(text: str) -> Turn[tuple[dict[str, Any], ...]]:
    return Turn(({"role": "user", "content": text},), 4)


SHAPE = RequestShape(model="stub")
CHATS = Workload("chats", tuple(ChatSession((user(f"question {i}"), user("and then"))) for i in range(6)))


def test_a_completion_is_read_to_its_usage() -> None:
    async def scene(url: str) -> None:
        async with BenchClient(url + "/v1/", "secret") as client:
            record = await client.ask(token_bytes([7, 8, 9]), 4, SHAPE, 3, 1)
        assert record.error is None
        assert (record.session, record.turn, record.text, record.finish_reason) == (3, 1, "yes", "stop")
        assert (record.prompt_tokens, record.cached_tokens, record.completion_tokens) == (3, 2, 4)
        assert len(record.chunk_s) == 2
        assert 0 <= record.start_s < record.chunk_s[0] <= record.chunk_s[1] <= record.end_s
        assert record.prompt_ids == token_bytes([7, 8, 9])
        assert record.output_ids is None

    stub = Stub()
    with serving(stub) as url:
        asyncio.run(scene(url))
    assert stub.bodies[0]["prompt"] == [7, 8, 9]
    assert stub.bodies[0]["stream_options"] == {"include_usage": True}
    assert stub.bodies[0]["ignore_eos"] is True


@pytest.mark.parametrize(
    ("broken", "message"),
    [("status", "500"), ("frame", "engine died"), ("cut", "ended without a finish_reason")],
)
def test_failures_are_recorded_and_not_retried(broken: str, message: str) -> None:
    async def scene(url: str) -> None:
        async with BenchClient(url) as client:
            records = await run_workload(client, CHATS, SHAPE, max_concurrency=2)
        assert len(records) == 6
        assert all(message in (record.error or "") for record in records)

    stub = Stub()
    stub.broken = broken
    with serving(stub) as url:
        asyncio.run(scene(url))
    assert len(stub.bodies) == 6


def test_sessions_run_at_the_given_concurrency_and_carry_their_history() -> None:
    async def scene(url: str) -> None:
        seen: list[Record] = []
        async with BenchClient(url) as client:
            records = await run_workload(client, CHATS, SHAPE, max_concurrency=2, on_record=seen.append)
        assert [(record.session, record.turn) for record in records] == [(i, turn) for i in range(6) for turn in range(2)]
        assert sorted(seen, key=lambda record: (record.session, record.turn)) == records

    stub = Stub()
    with serving(stub) as url:
        asyncio.run(scene(url))
    assert stub.most_open <= 2
    second = [body["messages"] for body in stub.bodies if len(body["messages"]) == 3]
    assert len(second) == 6
    assert all(messages[1] == {"role": "assistant", "content": "yes"} for messages in second)


def test_start_times_follow_the_rate() -> None:
    assert start_times(3, None, 0) == [0.0, 0.0, 0.0]
    times = start_times(10_000, 50.0, 0)
    assert times[0] == 0.0
    assert times == sorted(times)
    assert 190 < times[-1] < 210
    assert times == start_times(10_000, 50.0, 0)


def test_nobody_there_is_one_line() -> None:
    with pytest.raises(ConfigError, match="nobody answers at"):
        run(ServeBenchOptions(base_url="http://127.0.0.1:9"))


@pytest.mark.parametrize("returns_ids", [True, False])
def test_bench_serve_compares_with_the_ideal(tmp_path: Path, capsys: pytest.CaptureFixture[str], returns_ids: bool) -> None:
    file = tmp_path / "dialogues.jsonl"
    file.write_text(json.dumps({"history": [{"user": "abc"}, {"user": "de"}]}))
    output_file = tmp_path / "result.json"
    stub = Stub(returns_ids=returns_ids)
    with serving(stub) as url:
        options = ServeBenchOptions(
            dataset="mt-bench-101", dataset_path=file, base_url=url, flush_cache=True, json=True, output_file=output_file
        )
        assert run(options) == 0
    result = json.loads(capsys.readouterr().out)
    assert json.loads(output_file.read_text()) == result
    first, second = len("<user>abc<assistant>"), len("<user>abc<assistant>yes<user>de<assistant>")
    assert result["summary"]["prompt_tokens"] == first + second
    ideal = (first + len("yes")) / (first + second)
    assert result["ideal"]["hit_rate"] == pytest.approx(ideal)
    assert result["ideal"]["token_ids"] == ("returned by the server" if returns_ids else "tokenized by /tokenize")
    measured = 4 / (first + second)
    assert result["ideal"]["points_below_ideal"] == pytest.approx((ideal - measured) * 100, abs=0.001)
    assert result["model"] == "stub"
    assert stub.flushes == 1
    assert "api_key" not in result["options"]


def test_recorded_texts_are_sent_as_they_stand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = [{"timestamp": 1, "input": "abc"}, {"timestamp": 2, "input": "abcyes?"}]
    file = tmp_path / "session.jsonl"
    file.write_text("\n".join(json.dumps(step) for step in steps))
    stub = Stub()
    with serving(stub) as url:
        options = ServeBenchOptions(
            dataset="agent-miniswe", dataset_path=file, tokenizer=make_tiny_model(tmp_path / "model"), base_url=url, json=True
        )
        assert run(options) == 0
    result = json.loads(capsys.readouterr().out)
    assert [body["prompt"] for body in stub.bodies] == ["abc", "abcyes?"]
    assert result["ideal"] == {
        "hit_rate": len("abcyes") / len("abcabcyes?"),
        "token_ids": "tokenized by /tokenize",
        "points_below_ideal": pytest.approx((6 - 4) / 10 * 100),
    }
    assert result["options"]["tokenizer"] == str(tmp_path / "model")


def test_bench_serve_prints_a_table_and_fails_with_the_requests(capsys: pytest.CaptureFixture[str]) -> None:
    stub = Stub()
    stub.broken = "status"
    with serving(stub) as url:
        options = ServeBenchOptions(base_url=url, gsp_num_groups=1, gsp_prompts_per_group=2, gsp_system_prompt_len=4)
        assert run(options) == 1
    captured = capsys.readouterr()
    assert "0 (2)" in captured.out
    assert "500" in captured.err


def test_prompts_of_ids_need_no_tokenizer(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Stub()) as url:
        options = ServeBenchOptions(
            base_url=url, gsp_num_groups=1, gsp_prompts_per_group=3, gsp_system_prompt_len=6, gsp_question_len=2, json=True
        )
        assert run(options) == 0
    ideal = json.loads(capsys.readouterr().out)["ideal"]
    assert ideal["token_ids"] == "sent as ids"
    assert ideal["hit_rate"] == 0.5


def test_more_than_the_ideal_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Stub()) as url:
        assert run(ServeBenchOptions(base_url=url, gsp_num_groups=1, gsp_prompts_per_group=1)) == 0
    assert "not empty at the start" in " ".join(capsys.readouterr().out.split())
