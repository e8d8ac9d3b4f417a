"""Pages of other sites can't use a server through the browser of who visits them, and clients notice nothing of that."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from radixserve.config import ServerConfig
from radixserve.server.endpoints import CONTRACTS
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


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1", "gpu-box"])
@pytest.mark.parametrize(
    ("allowed", "asked", "wanted"),
    [
        ((), "models.example", 403),
        (("models.example",), "models.example:8000", 200),
        (("a.example", "Models.Example"), "MODELS.example.", 200),
        (("models.example",), "x.models.example", 403),
        (("*",), "models.example", 200),
    ],
)
def test_other_names_are_answered_where_they_are_allowed(
    tiny_model_dir: Path, host: str, allowed: tuple[str, ...], asked: str, wanted: int
) -> None:
    config = ServerConfig(host=host, allowed_host=allowed)
    (reply,) = ask(tiny_model_dir, config, [("GET", "/version")], {"host": asked})
    assert reply.status_code == wanted
    if wanted == 403:
        assert "--allowed-host" in reply.text


def test_a_server_answers_to_the_name_that_it_listens_on(tiny_model_dir: Path) -> None:
    (reply,) = ask(tiny_model_dir, ServerConfig(host="gpu-box"), [("GET", "/version")], {"host": "gpu-box:8000"})
    assert reply.status_code == 200


def test_with_a_key_any_name_is_answered(tiny_model_dir: Path) -> None:
    headers = {"host": "models.example", "x-api-key": "key"}
    (reply,) = ask(tiny_model_dir, ServerConfig(api_key="key"), [("GET", "/version")], headers)
    assert reply.status_code == 200


@pytest.mark.parametrize(
    ("origin", "asked"),
    [
        ("https://evil.example", "10.0.0.7:8000"),
        ("http://10.0.0.8:8000", "10.0.0.7:8000"),
        ("http://10.0.0.7:3000", "10.0.0.7:8000"),  # another program of the same machine
        ("http://localhost", "localhost:8000"),
        ("null", "localhost:8000"),
        ("", "localhost:8000"),
        ("localhost:8000", "localhost:8000"),
        ("file://localhost:8000", "localhost:8000"),
        ("http://localhost:8000.evil.example", "localhost:8000"),
    ],
)
def test_a_page_from_elsewhere_is_refused_by_its_origin(tiny_model_dir: Path, origin: str, asked: str) -> None:
    """Browsers send no Sec-Fetch-Site to plain http on a LAN, but Origin always with what is not a plain GET."""
    for host in ("127.0.0.1", "0.0.0.0"):
        for reply in ask(tiny_model_dir, ServerConfig(host=host), POSTED, {"host": asked, "origin": origin}):
            assert (reply.status_code, "page of another site" in reply.text) == (403, True)


@pytest.mark.parametrize(
    ("origin", "asked"),
    [
        ("http://localhost:8000", "localhost:8000"),
        ("http://10.0.0.7:8000", "10.0.0.7:8000"),
        ("http://[::1]:8000", "[::1]:8000"),
        ("http://localhost", "localhost:80"),
        ("https://localhost", "localhost:443"),
        ("http://LOCALHOST", "localhost"),
        ("https://models.example", "127.0.0.1:8000"),  # a proxy of that name sends its own Host
    ],
)
def test_a_page_of_its_own_is_let_through_by_its_origin(tiny_model_dir: Path, origin: str, asked: str) -> None:
    config = ServerConfig(allowed_host=("models.example",))
    (reply,) = ask(tiny_model_dir, config, [("POST", "/v1/completions")], {"host": asked, "origin": origin})
    assert reply.status_code == 400


@pytest.mark.parametrize("path", ["/ui/", "/", "/version", "/nowhere", "/health", "/server_info"])
@pytest.mark.parametrize("key", [None, "key"])
def test_no_reply_is_shown_in_a_frame_or_taken_for_something_else(tiny_model_dir: Path, path: str, key: str | None) -> None:
    (reply,) = ask(tiny_model_dir, ServerConfig(api_key=key), [("GET", path)], {})
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["x-frame-options"] == "DENY"
    assert "frame-ancestors 'none'" in reply.headers["content-security-policy"]


def test_who_has_the_key_may_come_from_anywhere(tiny_model_dir: Path) -> None:
    headers = {"sec-fetch-site": "cross-site", "x-api-key": "key"}
    (reply,) = ask(tiny_model_dir, ServerConfig(api_key="key"), [("POST", "/v1/completions")], headers)
    assert reply.status_code == 400
