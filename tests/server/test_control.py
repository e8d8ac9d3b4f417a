"""Ending requests by id, probing the engine, loading other weights."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from radixserve.errors import EngineDeadError
from radixserve.ipc import GenerateRequest, Output
from radixserve.server.admin import routes as admin
from tests.server.fake_engine import FakeClient, http, make_service
from tests.server.running import RunningServer, frames, running, wait_until
from tests.tiny_models import make_tiny_model

LONG = {"max_tokens": 19_000, "temperature": 0, "ignore_eos": True}
"""Far longer than a test takes."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Room for answers of 19,000 tokens."""
    tmp_path = tmp_path_factory.mktemp("roomy")
    model = make_tiny_model(tmp_path / "llama", max_position_embeddings=20_000)
    with running(tmp_path, model, server={"served_model_name": "tiny"}, num_slots=60_000) as this:
        yield this


def in_background(server: RunningServer, route: str, headers: dict[str, str], **body: Any) -> tuple[threading.Thread, list[Any]]:
    """Sends a request on a thread of its own; its reply is put into the list."""
    replies: list[Any] = []
    thread = threading.Thread(
        target=lambda: replies.append(httpx.post(server.url + route, json=body, headers=headers, timeout=60).json())
    )
    thread.start()
    return thread, replies


@pytest.mark.parametrize("by", ["x-request-id", "reply id", "rid", "all"])
def test_abort(server: RunningServer, by: str) -> None:
    """A stream that has begun, and its reply says how it ended."""
    route, body = ("/generate", {"text": "Once", "rid": "mine", "sampling_params": {"max_new_tokens": 19_000, "ignore_eos": True}})
    if by != "rid":
        route, body = "/v1/completions", {"prompt": "Once", "n": 2, **LONG}
    headers = {"x-request-id": "the-user-s"}
    with httpx.stream("POST", server.url + route, json=body | {"stream": True}, headers=headers, timeout=60) as stream:
        text = stream.iter_text()
        begun = next(text)
        named = {"x-request-id": "the-user-s", "reply id": "cmpl-the-user-s", "rid": "mine", "all": ""}[by]
        reply = server.post("/abort_request", rid=named, abort_all=by == "all").json()
        *chunks, done = frames(begun + "".join(text))
    assert reply == {"aborted": 1 if by == "rid" else 2}
    assert done == "[DONE]"
    if by == "rid":
        assert chunks[-1]["meta_info"]["finish_reason"]["type"] == "abort"
    else:
        reasons = {chunk["choices"][0]["index"]: chunk["choices"][0]["finish_reason"] for chunk in chunks}
        assert reasons == {0: "abort", 1: "abort"}
    server.wait_idle()


def test_an_aborted_request_answers_what_it_has_and_others_go_on(server: RunningServer) -> None:
    thread, replies = in_background(server, "/v1/completions", {"x-request-id": "ends-early"}, prompt="Once", **LONG)
    other, others = in_background(server, "/v1/completions", {}, prompt="cd", max_tokens=20, temperature=0, ignore_eos=True)
    while server.post("/abort_request", rid="ends-early").json()["aborted"] == 0:
        assert thread.is_alive()
    thread.join()
    other.join()
    assert replies[0]["choices"][0]["finish_reason"] == "abort"
    assert replies[0]["usage"]["completion_tokens"] < 19_000
    assert others[0]["choices"][0]["finish_reason"] == "length"
    wait_until(lambda: "finish=abort" in server.log)  # written after the reply


def test_abort_of_what_is_not_there(server: RunningServer) -> None:
    assert server.post("/abort_request", rid="nobody").json() == {"aborted": 0}
    assert server.post("/abort_request", abort_all=True).json() == {"aborted": 0}
    assert server.post("/abort_request").status_code == 400


def test_probes_and_information(server: RunningServer) -> None:
    before = server.wait_idle()["generated_tokens"]
    assert server.get("/health_generate") == {"status": "ok"}
    assert server.wait_idle()["generated_tokens"] == before + 1
    info = server.get("/get_model_info")
    assert info["is_generation"] is True
    assert info["served_model_name"] == "tiny"
    assert server.get("/server_info").items() >= info.items()
    assert server.get("/server_info")["max_total_num_tokens"] == 60_000
    tokens = server.get("/tokenizer_info")
    assert (tokens["bos_token"], tokens["eos_token"]) == ("<|endoftext|>", "<|im_end|>")
    assert "<|im_start|>" in tokens["chat_template"]
    assert server.get("/version") == {"version": server.get("/server_info")["version"]}


def test_whoever_reads_the_figures_after_a_reply_sees_its_counts(server: RunningServer) -> None:
    """At once, however short the time since the figures were last told; and what runs is seen to run."""

    def scraped() -> float | None:
        families = text_string_to_metric_families(httpx.get(f"{server.url}/metrics").text)
        samples = {sample.name: sample.value for family in families for sample in family.samples}
        assert samples["radixserve_stats_age_seconds"] == 0
        return samples["radixserve_generated_tokens_total"]

    for read in (scraped, lambda: server.get("/server_info")["stats"]["generated_tokens"]):
        for _ in range(5):
            before = read()
            assert server.post("/v1/completions", prompt="Once", max_tokens=3, ignore_eos=True).status_code == 200
            assert read() == before + 3
            with httpx.stream("POST", server.url + "/v1/completions", json=LONG | {"prompt": "Once", "stream": True}) as stream:
                news = stream.iter_bytes()  # closes the stream when it goes
                next(news)
                assert server.get("/server_info")["stats"]["num_running"] == 1
            server.wait_idle()


def test_embeddings_are_refused_with_the_reason(server: RunningServer) -> None:
    reply = server.post("/v1/embeddings", model="tiny", input="Once")
    assert reply.status_code == 400
    assert "'tiny' generates text and has no embeddings" in reply.json()["error"]["message"]


def test_health_generate_follows_the_engine(tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(FakeClient):
        async def generate(self, requests: Sequence[GenerateRequest]) -> AsyncGenerator[tuple[int, Output], None]:
            await asyncio.Event().wait()
            yield 0, Output("0", "a", (64,), 4, 0, 1)

    async def probe(client: FakeClient) -> int:
        async with http(make_service(tiny_model_dir, client)) as session:
            return (await session.get("/health_generate")).status_code

    monkeypatch.setattr(admin, "HEALTH_TIMEOUT_S", 0.01)
    clients = (FakeClient(), FakeClient(EngineDeadError("it ended")), Hanging())
    assert [asyncio.run(probe(client)) for client in clients] == [200, 503, 503]


def test_other_weights(tmp_path: Path, server: RunningServer) -> None:
    """Case: a weight update kept the KV of the old ones."""
    body = {"prompt": "Why my code throws errors", "max_tokens": 12, "temperature": 0, "ignore_eos": True}
    old = server.get("/server_info")["model_path"]
    new = str(make_tiny_model(tmp_path / "other", seed=1))
    before = server.post("/v1/completions", **body).json()["choices"][0]["text"]
    assert server.post("/update_weights", model=str(tmp_path / "nowhere")).status_code == 400
    with httpx.stream("POST", server.url + "/v1/completions", json=body | LONG | {"stream": True}) as stream:
        news = stream.iter_bytes()  # closes the stream when it goes
        next(news)
        assert server.post("/update_weights", model=new).status_code == 409
    server.wait_idle()
    assert server.post("/update_weights", model=new).json()["success"] is True
    reply = server.post("/v1/completions", **body).json()
    assert reply["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert reply["choices"][0]["text"] != before
    assert server.post("/update_weights", model=old).json()["success"] is True
    assert server.post("/v1/completions", **body).json()["choices"][0]["text"] == before
