"""/openapi.json has every endpoint, and requests made from it get what it promises: schemathesis sends them."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance, status_code_conformance

from radixserve.config import ServerConfig
from radixserve.server.endpoints import CONTRACTS
from tests.server.fake_engine import FakeClient, http, make_service
from tests.server.running import RunningServer

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def api(server: RunningServer) -> Iterator[Any]:
    yield schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    server.post("/cache/unpin", all=True)
    server.wait_idle()


SETTINGS = settings(
    max_examples=6,
    deadline=None,
    phases=[Phase.generate],
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
LEFT_OUT = {"/cache/events", "/update_weights"}
"""The first never ends, and the second could break the server."""


@pytest.mark.parametrize(("method", "path"), [key for key in CONTRACTS if key[1] not in LEFT_OUT])
def test_replies_are_as_documented(api: Any, method: str, path: str) -> None:
    @given(case=api[path][method].as_strategy())
    @SETTINGS
    def ask(case: Any) -> None:
        case.call_and_validate(checks=CHECKS, timeout=120)

    ask()


def test_every_endpoint_is_in_it(tiny_model_dir: Path) -> None:
    async def ask() -> Any:
        async with http(make_service(tiny_model_dir, FakeClient(), ServerConfig(api_key="key"))) as client:
            return (await client.get("/openapi.json", headers={"x-api-key": "key"})).json()

    document = asyncio.run(ask())
    found = {(method.upper(), path) for path, operations in document["paths"].items() for method in operations}
    assert found == set(CONTRACTS)
    assert document["security"] == [{"key": []}, {"x-api-key": []}]


def test_every_endpoint_is_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs/serving.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if re.match(r"\| `(GET|POST)", line)]
    told = {path for row in rows for path in re.findall(r"(/[\w/.]+(?:{\w+})?)", row)}
    known = {re.sub(r"{\w+}", "{}", path) for _, path in CONTRACTS}
    assert known <= {re.sub(r"{\w+}", "{}", path) for path in told}
