"""SIGTERM, with streams open and requests queued."""

import concurrent.futures
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.server.running import PATIENCE_S, RunningServer, frames, launch, running, wait_until
from tests.tiny_models import make_tiny_model


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    """Two requests run at once, more wait."""
    model = make_tiny_model(tmp_path / "model", max_position_embeddings=16_384)
    grace_s = getattr(request, "param", 1000.0)
    with running(tmp_path, model, server={"grace_s": grace_s}, num_slots=40_000, max_running=2) as this:
        yield this


def stream(server: RunningServer, max_tokens: int) -> str:
    body = {"prompt": "Once", "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "stream": True}
    return httpx.post(server.url + "/v1/completions", json=body, timeout=60).text


def test_accepted_work_finishes_and_new_work_is_refused(server: RunningServer) -> None:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        streams = [pool.submit(stream, server, 1_200) for _ in range(5)]  # long enough to be seen all at once
        wait_until(lambda: (s := server.stats())["num_running"] == 2 and s["num_waiting"] == 3)
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: httpx.get(server.url + "/health").status_code == 503)
        refused = server.post("/v1/completions", prompt="a")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
        for text in [future.result() for future in streams]:
            *chunks, done = frames(text)
            assert done == "[DONE]"
            assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert server.process.wait(timeout=PATIENCE_S) == 0


@pytest.mark.parametrize("server", [0.3], indirect=True)
def test_what_is_not_done_within_the_grace_is_cut_and_says_so(server: RunningServer) -> None:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        streams = [pool.submit(stream, server, 15_000) for _ in range(3)]
        wait_until(lambda: (s := server.stats())["num_running"] == 2 and s["num_waiting"] == 1)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=PATIENCE_S) == 0
        running_first, running_second, queued = sorted((future.result() for future in streams), key=len, reverse=True)
    for text in (running_first, running_second):
        assert "shutting down" in frames(text)[-1]["error"]["message"]
    assert "shutting down" in queued
    assert "cut 3 answers" in server.log


def test_a_second_signal_ends_at_once_and_says_so(server: RunningServer) -> None:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        streams = [pool.submit(stream, server, 15_000) for _ in range(2)]
        wait_until(lambda: server.stats()["num_running"] == 2)
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: httpx.get(server.url + "/health").status_code == 503)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=PATIENCE_S) == 0
        for text in [future.result() for future in streams]:
            assert "shutting down" in frames(text)[-1]["error"]["message"]


@pytest.mark.parametrize(
    ("model", "engine", "server", "says"),
    [
        ("no-such-model", {}, {}, "no-such-model"),
        (None, {"num_slots": 0}, {}, "--num-slots is 0"),
        (None, {"engine_timeout_s": 0}, {}, "--engine-timeout-s is 0"),
        (None, {}, {"port": -1}, "--port"),
        (None, {}, {"max_open_requests": 0}, "--max-open-requests is 0"),
    ],
    ids=["model", "pool", "patience", "port", "requests"],
)
def test_what_cannot_start_says_why_in_one_line(
    tmp_path: Path, tiny_model_dir: Path, model: str | None, engine: dict[str, int], server: dict[str, int], says: str
) -> None:
    this = launch(tmp_path, model or tiny_model_dir, engine, server)
    assert this.process.wait(timeout=PATIENCE_S) == 1
    assert this.process.stdout is not None
    this.process.stdout.close()
    (line,) = this.log.splitlines()
    assert says in line


def test_a_port_in_use(tmp_path: Path, tiny_model_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        this = launch(tmp_path, tiny_model_dir, {}, {"port": port})
        assert this.process.wait(timeout=PATIENCE_S) == 1
    assert this.process.stdout is not None
    this.process.stdout.close()
    (line,) = this.log.splitlines()
    assert f"127.0.0.1:{port}" in line
