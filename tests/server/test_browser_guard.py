"""Pages of other sites can't use a server through the browser of who visits them, and clients notice nothing of that."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from radixserve.config import ServerConfig
from radixserve.server.contracts import CONTRACTS
from tests.server.fake_engine import FakeClient, http, make_service

POSTED = [(method, path.replace("{name}", "x")) for method, path in CONTRACTS if method != "GET"]


def ask(model: Path, config: ServerConfig, requests: list[tuple[str, str]], headers: dict[str, str]) -> list[Any]:
    async def all_of_them() -> list[Any]:
        async with http(make_service(model, FakeClient(), config)) as client:
            return [await client.request(method, path, headers=headers, content=b"{}") for method, path in requests]

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_a_page_of_another_site_sends_is_refused(tiny_model_dir: Path, site: str) -> None:
    for host in ("127.0.0.1", "0.0.0.0"):
        for reply in ask(tiny_model_dir, ServerConfig(host=host), POSTED, {"sec-fetch-site": site}):
            assert (reply.status_code, "page of another site" in reply.text) == (403, True)


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_the_own_page_is_let_through(tiny_model_dir: Path, site: str) -> None:
    (reply,) = ask(tiny_model_dir, ServerConfig(), [("POST", "/v1/completions")], {"sec-fetch-site": site})
    assert reply.status_code == 400


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example:80"])
def test_a_name_that_means_this_machine_is_not_answered(tiny_model_dir: Path, host: str) -> None:
    paths = [("GET", "/cache/tree"), ("GET", "/server_info"), ("POST", "/v1/completions"), ("GET", "/ui/")]
    for reply in ask(tiny_model_dir, ServerConfig(), paths, {"host": host}):
        assert (reply.status_code, reply.json()["error"]["code"]) == (403, "unknown_host")


@pytest.mark.parametrize(
    "host", ["localhost:8000", "LOCALHOST", "localhost.", "a.localhost", "127.0.0.1:80", "[::1]:8000", "10.0.0.7"]
)
def test_its_own_names_are(tiny_model_dir: Path, host: str) -> None:
    (reply,) = ask(tiny_model_dir, ServerConfig(), [("GET", "/version")], {"host": host})
    assert reply.status_code == 200


@pytest.mark.parametrize(
    "config", [ServerConfig(host="0.0.0.0"), ServerConfig(host="gpu-box"), ServerConfig(api_key="key")], ids=str
)
def test_a_server_for_others_has_any_name(tiny_model_dir: Path, config: ServerConfig) -> None:
    headers = {"host": "models.example", "x-api-key": "key"}
    (reply,) = ask(tiny_model_dir, config, [("GET", "/version")], headers)
    assert reply.status_code == 200


def test_who_has_the_key_may_come_from_anywhere(tiny_model_dir: Path) -> None:
    headers = {"sec-fetch-site": "cross-site", "x-api-key": "key"}
    (reply,) = ask(tiny_model_dir, ServerConfig(api_key="key"), [("POST", "/v1/completions")], headers)
    assert reply.status_code == 400
