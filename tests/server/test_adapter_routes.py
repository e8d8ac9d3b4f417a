"""Adapters over HTTP: models of their own, loaded and unloaded while the server runs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from radixserve.config import EngineConfig, ServerConfig
from radixserve.server.app import serve
from tests.server.running import RunningServer, running
from tests.tiny_adapters import make_tiny_adapter

BODY: dict[str, Any] = {"prompt": "Why my code throws errors", "max_tokens": 12, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def adapters(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("adapters")
    return {name: str(make_tiny_adapter(folder / name, tiny_model_dir, seed=seed)) for seed, name in enumerate(("sql", "poet"))}


@pytest.fixture(scope="module")
def served(tiny_model_dir: Path, adapters: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One with the adapter `sql` from its start."""
    settings = {"served_model_name": "tiny"}
    flag = [f"sql={adapters['sql']}"]
    with running(tmp_path_factory.mktemp("served"), tiny_model_dir, server=settings, num_slots=2000, adapter=flag) as this:
        yield this
        this.wait_idle()


def text(server: RunningServer, model: str) -> tuple[str, int]:
    """An answer, and how much of its prompt was cached."""
    reply = server.post("/v1/completions", model=model, **BODY).json()
    assert reply["model"] == model
    return reply["choices"][0]["text"], reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_the_model_field_chooses_and_nothing_is_shared(served: RunningServer) -> None:
    served.post("/flush_cache")
    (base, _), (sql, cached) = text(served, "tiny"), text(served, "sql")
    assert sql != base
    assert cached == 0
    assert text(served, "sql") == (sql, len(BODY["prompt"]) - 1)
    assert text(served, "tiny") == (base, len(BODY["prompt"]) - 1)


def test_every_route_takes_an_adapter(served: RunningServer) -> None:
    messages = [{"role": "user", "content": "hi"}]
    limit = {"max_tokens": 3, "messages": messages, "model": "sql"}
    assert served.post("/v1/chat/completions", **limit).json()["model"] == "sql"
    assert served.post("/v1/messages", **limit).json()["model"] == "sql"
    assert served.post("/v1/responses", model="sql", input="hi", max_output_tokens=3).json()["model"] == "sql"
    sampling = {"max_new_tokens": 12, "temperature": 0, "ignore_eos": True}
    prompts = [BODY["prompt"]] * 2
    both = served.post("/generate", text=prompts, sampling_params=sampling, lora_path=["sql", None]).json()
    assert [one["text"] for one in both] == [text(served, "sql")[0], text(served, "tiny")[0]]
    assert served.post("/generate", text="a", lora_path="none").status_code == 404


def test_models_are_listed_and_others_get_404_with_what_there_is(served: RunningServer) -> None:
    base, sql = served.get("/v1/models")["data"]
    assert (base["id"], sql["id"], sql["parent"]) == ("tiny", "sql", "tiny")
    assert "parent" not in base
    assert served.get("/v1/models/sql") == sql
    reply = served.post("/v1/completions", model="other", **BODY)
    assert reply.status_code == 404
    assert reply.json()["error"]["message"] == "the model 'other' is not served here: ask for 'tiny', 'sql'"


def test_adapters_come_and_go_while_the_server_runs(served: RunningServer, adapters: dict[str, str]) -> None:
    load = {"lora_name": "poet", "lora_path": adapters["poet"]}
    reply = served.post("/v1/load_lora_adapter", **load)
    assert (reply.status_code, reply.json()["message"]) == (200, "loaded adapter 'poet' (rank 4, 14 modules, made for tiny)")
    poem, _ = text(served, "poet")
    assert served.post("/v1/load_lora_adapter", **load).status_code == 400
    assert served.post("/v1/load_lora_adapter", lora_name="tiny", lora_path="x").status_code == 400
    with httpx.stream(
        "POST", served.url + "/v1/completions", json=BODY | {"model": "poet", "max_tokens": 900, "stream": True}
    ) as stream:
        news = stream.iter_bytes()  # closes the stream when it goes
        next(news)
        assert "1 open requests end with it" in served.post("/v1/unload_lora_adapter", lora_name="poet").json()["message"]
        assert served.get("/server_info")["adapters"] == {"sql": adapters["sql"]}
        assert served.post("/v1/completions", model="poet", **BODY).status_code == 404
        assert next(news)
    served.wait_idle()
    assert served.post("/v1/completions", model="poet", **BODY).status_code == 404
    assert served.post("/v1/unload_lora_adapter", lora_name="poet").status_code == 404
    served.post("/v1/load_lora_adapter", lora_name="poet", lora_path=adapters["sql"])
    again, cached = text(served, "poet")
    assert cached == 0
    assert again == text(served, "sql")[0] != poem
    assert served.post("/v1/load_lora_adapter", **load, load_inplace=True).status_code == 200
    assert text(served, "poet") == (poem, 0)
    assert list(served.get("/server_info")["adapters"]) == ["sql", "poet"]
    served.post("/v1/unload_lora_adapter", lora_name="poet")


def test_warming_and_exporting_keep_to_the_adapter(served: RunningServer) -> None:
    served.post("/flush_cache")
    line = '{"prompt": "Once upon a time", "model": "sql"}'
    assert served.post_raw("/cache/warm", line).json()["cached_tokens"] == 0
    assert served.post_raw("/cache/warm", line).json()["cached_tokens"] == 15
    exported = httpx.get(served.url + "/cache/export").text
    assert '"model":"sql"' in exported
    assert served.post_raw("/cache/warm", exported).json()["cached_tokens"] == 15
    assert served.post("/cache/pin", prompt="Once upon a time", model="sql").json()["pinned_tokens"] == 16
    assert served.post("/cache/unpin", all=True).status_code == 200


@pytest.mark.parametrize(
    ("flag", "fault"),
    [
        ("sql", "--adapter is 'sql': write NAME=DIR"),
        ("base=/x", "--adapter names 'base', which is the model's name"),
        ("sql=/nowhere", "--adapter: adapter 'sql': /nowhere has no adapter_config.json"),
    ],
)
def test_a_flag_that_cannot_be_honoured_is_one_line(
    flag: str, fault: str, tiny_model_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = EngineConfig(model=str(tiny_model_dir), adapter=(flag,), num_slots=64, dtype="float32", device="cpu")
    assert serve(engine, ServerConfig(port=0, served_model_name="base")) == 1
    error = capsys.readouterr().err
    assert fault in error.splitlines()[-1]
