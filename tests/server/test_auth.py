"""The API key guards everything but the liveness probe and the files of the live page."""

import asyncio
import logging
from pathlib import Path

import httpx
import pytest
from starlette.routing import Route

from radixserve.cli.serve import serve as serve_command
from radixserve.config import ServerConfig
from radixserve.server.app import make_app, warn_if_open
from tests.server.fake_engine import FakeClient, http, make_service

KEY = "a-secret-key"
OPEN = {"/health", "/", "/ui", "/ui/"}
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def spellings(path: str) -> list[str]:
    return [path, path + "/", "/" + path, path.replace("/", "//"), path + "?x=1", path.upper()]


def test_every_route_method_and_spelling(tiny_model_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def ask_all() -> list[tuple[str, str, httpx.Response]]:
        service = make_service(tiny_model_dir, FakeClient(), ServerConfig(api_key=KEY))
        paths = [route.path for route in make_app(service).routes if isinstance(route, Route)]
        assert len(paths) >= 9
        headers = [
            {},
            {"authorization": "Bearer wrong"},
            {"authorization": KEY},
            {"authorization": "Bearer "},
            {"x-api-key": "wrong"},
        ]
        async with http(service) as client:
            return [
                (
                    method,
                    path,
                    await client.request(method, httpx.URL("http://test").copy_with(raw_path=path.encode()), headers=header),
                )
                for route in [*paths, "/", "/docs", "/nowhere"]
                for path in spellings(route)
                for method in METHODS
                for header in headers
            ]

    replies = asyncio.run(ask_all())
    for method, path, reply in replies:
        if path.partition("?")[0] in OPEN:
            assert reply.status_code != 401
        else:
            assert reply.status_code == 401, (method, path)
        assert KEY not in reply.text
    assert KEY not in caplog.text


def test_the_right_key_opens(tiny_model_dir: Path) -> None:
    async def ask() -> tuple[httpx.Response, httpx.Response]:
        service = make_service(tiny_model_dir, FakeClient(), ServerConfig(api_key=KEY))
        async with http(service) as client:
            client.headers["authorization"] = f"Bearer {KEY}"
            return await client.get("/server_info"), await client.post("/v1/completions", json={"prompt": "Once"})

    info, completion = asyncio.run(ask())
    assert info.status_code == completion.status_code == 200
    assert KEY not in info.text


@pytest.mark.parametrize("key", ["", " ", "\n"])
def test_an_empty_key_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """It would be a server without one, and nobody would know."""
    monkeypatch.setenv("RADIXSERVE_API_KEY", key)
    assert serve_command(server=ServerConfig(port=0)) == 1
    assert serve_command(server=ServerConfig(port=0, api_key=key)) == 1
    assert capsys.readouterr().err.count("--api-key (or RADIXSERVE_API_KEY) is empty") == 2


@pytest.mark.parametrize(
    ("host", "key", "warned"), [("0.0.0.0", None, True), ("::", None, True), ("127.0.0.1", None, False), ("0.0.0.0", "key", False)]
)
def test_an_open_address_without_a_key_is_warned_of(
    caplog: pytest.LogCaptureFixture, host: str, key: str | None, warned: bool
) -> None:
    warn_if_open(ServerConfig(host=host, api_key=key))
    assert ("without --api-key" in caplog.text) == warned
