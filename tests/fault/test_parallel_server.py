"""A server of several ranks: it answers as one rank does, and a rank that is slow, ends or can't start is never a hang."""

import concurrent.futures
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from radixserve import LLM, SamplingParams
from radixserve.engine.ranks import leader
from radixserve.errors import ConfigError, RankError
from tests.server.running import PATIENCE_S, RunningServer, frames, running, wait_until
from tests.tiny_adapters import make_tiny_adapter
from tests.tiny_models import make_tiny_model

TEXTS = ["Once upon a time", "Once upon a hill there", "A completely different thing", "Once upon a time there was"]
GREEDY = {"max_tokens": 24, "temperature": 0, "ignore_eos": True}
SCHEMA = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("ranks") / "model", max_position_embeddings=16_384)


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    return make_tiny_adapter(tmp_path_factory.mktemp("ranks") / "adapter", model)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, model: Path, adapter: Path) -> Iterator[RunningServer]:
    settings = {"num_slots": 40_000, "tensor_parallel": 2, "adapter": [f"first={adapter}"]}
    with running(tmp_path_factory.mktemp("server"), model, **settings) as server:
        yield server


def rank_1(server: RunningServer) -> psutil.Process:
    return psutil.Process(server.get("/server_info")["ranks"][1]["pid"])


def test_it_answers_as_one_rank(server: RunningServer, model: Path, adapter: Path) -> None:
    one = LLM(str(model), dtype="float32", device="cpu", num_threads=1, num_slots=2000, adapters={"first": adapter})
    params = SamplingParams(max_tokens=24, temperature=0, ignore_eos=True)
    assert server.post("/v1/load_lora_adapter", lora_name="second", lora_path=str(adapter)).status_code == 200
    for names, theirs in (((str(model),), None), (("first", "second"), "first")):
        expected = [answer.text for answer in one.generate(TEXTS, params, progress=False, adapter=theirs)]
        for name in names:
            replies = [server.post("/v1/completions", model=name, prompt=text, **GREEDY).json() for text in TEXTS]
            assert [reply["choices"][0]["text"] for reply in replies] == expected
            assert replies[3]["usage"]["prompt_tokens_details"]["cached_tokens"] >= len(TEXTS[0])


def test_ranks_meet_where_only_this_machine_connects(server: RunningServer) -> None:
    front = psutil.Process(server.process.pid)
    processes = [front, *front.children(recursive=True)]
    assert {rank["pid"] for rank in server.get("/server_info")["ranks"]} <= {process.pid for process in processes}
    bound = [
        connection.laddr.ip
        for process in processes
        for connection in process.net_connections(kind="inet")
        if connection.status in (psutil.CONN_LISTEN, psutil.CONN_NONE) and connection.laddr
    ]
    assert len(bound) > 1, "the server's own address, and where its ranks meet"
    assert set(bound) == {"127.0.0.1"}


def test_adapters_are_loaded_and_unloaded_on_all_ranks_or_on_none(server: RunningServer, tmp_path: Path, adapter: Path) -> None:
    reply = server.post("/v1/load_lora_adapter", lora_name="third", lora_path=str(tmp_path))
    assert reply.status_code == 400
    assert "has no adapter_config.json" in reply.text
    assert server.post("/v1/load_lora_adapter", lora_name="third", lora_path=str(adapter)).status_code == 200
    assert server.post("/v1/unload_lora_adapter", lora_name="third").status_code == 200
    assert server.post("/v1/completions", model="third", prompt="Once").status_code == 404
    assert server.post("/v1/completions", prompt="Once", **GREEDY).status_code == 200


def test_it_streams_scores_and_holds_to_schemas(server: RunningServer) -> None:
    body = {"prompt": "Once", "stream": True, **GREEDY}
    *chunks, done = frames(server.post("/v1/completions", **body).text)
    assert done == "[DONE]"
    assert len(chunks) > 1
    scored = server.post("/v1/completions", prompt="Once upon", echo=True, logprobs=1, max_tokens=0).json()
    assert len(scored["choices"][0]["logprobs"]["token_logprobs"]) == len("Once upon")
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
    chat = {"messages": [{"role": "user", "content": "a number"}], "max_tokens": 40, "temperature": 0, "response_format": form}
    answer = server.post("/v1/chat/completions", **chat).json()["choices"][0]["message"]["content"]
    assert answer.replace(" ", "") in ('{"n":1}', '{"n":2}')


def test_ranks_show(server: RunningServer) -> None:
    ranks = server.get("/server_info")["ranks"]
    assert [(rank["rank"], rank["num_heads"], rank["num_kv_heads"]) for rank in ranks] == [(0, 2, 1), (1, 2, 1)]
    metrics = httpx.get(server.url + "/metrics").text
    assert 'radixserve_rank_up{rank="0"} 1.0' in metrics
    assert 'radixserve_rank_up{rank="1"} 1.0' in metrics


def test_weights_are_replaced_on_all_ranks_or_on_none(server: RunningServer, tmp_path: Path) -> None:
    for name in server.get("/server_info")["adapters"]:
        assert server.post("/v1/unload_lora_adapter", lora_name=name).status_code == 200
    deeper = make_tiny_model(tmp_path / "deeper", num_hidden_layers=3)
    reply = server.post("/update_weights", model=str(deeper))
    assert reply.status_code == 400
    assert "num_layers 3 instead of 2" in reply.text
    before = server.post("/v1/completions", prompt="Once", **GREEDY).json()
    other = make_tiny_model(tmp_path / "other", seed=1)
    assert server.post("/update_weights", model=str(other)).status_code == 200
    after = server.post("/v1/completions", prompt="Once", **GREEDY).json()
    assert after["choices"][0]["text"] != before["choices"][0]["text"]
    assert after["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_a_slow_rank_only_slows(server: RunningServer) -> None:
    other = rank_1(server)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        other.suspend()
        try:
            answer = pool.submit(server.post, "/v1/completions", prompt="slowly", **GREEDY)
            assert httpx.get(server.url + "/health").status_code == 200
            assert not answer.done()
        finally:
            other.resume()
        assert answer.result().status_code == 200


def test_a_killed_rank_ends_all(server: RunningServer) -> None:
    """The last test of this server."""
    long = {"prompt": "Once", "max_tokens": 15_000, "temperature": 0, "ignore_eos": True, "stream": True}
    engine, other = server.engine, rank_1(server)
    with httpx.stream("POST", server.url + "/v1/completions", json=long, timeout=60) as stream:
        text = stream.iter_text()
        received = next(text)
        other.send_signal(signal.SIGKILL)
        received += "".join(text)
    assert "rank 1 was ended by signal 9" in frames(received)[-1]["error"]["message"]
    assert httpx.get(server.url + "/health").status_code == 503
    assert server.process.wait(timeout=PATIENCE_S) == 1
    wait_until(lambda: not engine.is_running())
    assert "rank 1 was ended by signal 9" in server.log


def test_an_idle_server_notices_a_killed_rank_and_no_rank_outlives_rank_0(tmp_path: Path, model: Path) -> None:
    with running(tmp_path, model, num_slots=300, tensor_parallel=3) as server:
        first, second = (psutil.Process(rank["pid"]) for rank in server.get("/server_info")["ranks"][1:])
        second.kill()
        assert server.process.wait(timeout=PATIENCE_S) == 1
        assert "rank 2 was ended by signal 9" in server.log
        wait_until(lambda: not first.is_running())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tensor_parallel": 5}, "--tensor-parallel is 5: the model has 4 query heads, a rank needs one; ask for 4 or less"),
        ({"tensor_parallel": 0}, "--tensor-parallel is 0: must be at least 1"),
        ({"tensor_parallel": 2, "device": "cuda:0"}, "--device is"),
        ({"tensor_parallel": 2, "model": "nowhere"}, "no model 'nowhere'"),
    ],
)
def test_what_can_t_be_split_is_refused_before_a_process_is_started(
    model: Path, settings: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader.subprocess, "Popen", None)
    with pytest.raises(ConfigError, match=message):
        LLM(**{"model": str(model), "device": "cpu"} | settings)


def test_a_pool_that_no_rank_has_memory_for_is_refused(model: Path) -> None:
    with pytest.raises(ConfigError, match="lower --num-slots"):
        LLM(str(model), device="cpu", num_slots=10**9, tensor_parallel=2)


def test_a_rank_that_can_t_start_is_named_with_its_reason(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader.sys, "executable", "false")
    with pytest.raises(RankError, match="rank 1 ended with exit code 1"):
        LLM(str(model), device="cpu", num_slots=300, tensor_parallel=2)
