"""The engine process is killed while it streams."""

import concurrent.futures
from pathlib import Path

import httpx

from tests.server.running import PATIENCE_S, frames, running, wait_until
from tests.tiny_models import make_tiny_model

LONG = {"prompt": "Once", "max_tokens": 15_000, "temperature": 0, "ignore_eos": True}


def test_open_requests_hear_an_error_and_the_server_ends(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "model", max_position_embeddings=16_384)
    with running(tmp_path, model, num_slots=40_000) as server, concurrent.futures.ThreadPoolExecutor() as pool:
        whole = pool.submit(server.post, "/v1/completions", **LONG)
        with httpx.stream("POST", server.url + "/v1/completions", json=LONG | {"stream": True}, timeout=60) as stream:
            text = stream.iter_text()
            received = next(text)
            wait_until(lambda: server.stats()["num_running"] == 2)
            engine = server.engine
            engine.kill()
            received += "".join(text)
        *chunks, last = frames(received)
        assert "SIGKILL" in last["error"]["message"]
        assert len(chunks) > 0
        assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
        assert httpx.get(server.url + "/health").status_code == 503
        assert whole.result().status_code == 503
        assert server.post("/v1/completions", **LONG).status_code == 503
        assert server.process.wait(timeout=PATIENCE_S) == 1
        assert "SIGKILL" in server.log


def test_the_engine_does_not_outlive_its_parent(tmp_path: Path, tiny_model_dir: Path) -> None:
    with running(tmp_path, tiny_model_dir, num_slots=300) as server:
        engine = server.engine
        server.process.kill()
        engine.wait(timeout=PATIENCE_S)
