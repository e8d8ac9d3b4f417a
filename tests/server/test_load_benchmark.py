"""`python -m benchmarks.load` against a real server: what it counts is what the engine did."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.load import background_load as background_loads
from benchmarks.load import run as under_load
from benchmarks.load.client_disconnects import disconnect_all
from benchmarks.load.run import LoadBenchOptions
from radixserve.bench.client import BenchClient
from radixserve.errors import ConfigError
from tests.server.running import RunningServer


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's context is short and its pool small."""
    for name, value in (("TEXT_WORDS", 20), ("CHAT_TURNS", 4), ("SLOW_ANSWER", 100)):
        monkeypatch.setattr(background_loads, name, value)


def result_of(server: RunningServer, capsys: pytest.CaptureFixture[str], **options: Any) -> dict[str, Any]:
    assert under_load.run(LoadBenchOptions(base_url=server.url, streams=4, output_len=12, json=True, **options)) == 0
    return json.loads(capsys.readouterr().out)


def test_every_stream_is_measured_beside_every_disturbance(
    server: RunningServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "load.json"
    result = result_of(server, capsys, pid=server.process.pid, output_file=file, api_key="secret")
    assert [run["beside"] for run in result["runs"]] == [*background_loads.BACKGROUND_LOADS]
    assert all(run["output_tokens"] == 48 for run in result["runs"])
    assert all(0 < run["gap_median_s"] <= run["gap_p99_s"] <= run["gap_max_s"] for run in result["runs"])
    assert result["runs"][0]["disturbances"] == 0 < result["runs"][1]["disturbances"]
    assert result["runs"][0]["http_share"] >= 0
    assert result["departure"]["freed"] is True
    assert json.loads(file.read_text())["runs"] == result["runs"]
    assert "secret" not in file.read_text()
    server.wait_idle()


@pytest.mark.parametrize("output_len", [16, 1], ids=["left early", "some end before others begin"])
def test_tokens_made_for_clients_that_are_gone_are_counted(server: RunningServer, output_len: int) -> None:
    async def leave() -> Any:
        async with BenchClient(server.url) as client:
            return await disconnect_all(client, "tiny", 3, output_len)

    before = sum(server.wait_idle()["finished"].values())
    departure = asyncio.run(leave())
    assert departure.freed
    assert departure.steps >= 0
    assert sum(server.wait_idle()["finished"].values()) == before + 3  # left, or done before the server knew


def test_what_cannot_be_measured_is_said(server: RunningServer) -> None:
    with pytest.raises(ConfigError, match="--streams is 1"):
        under_load.run(LoadBenchOptions(base_url=server.url, streams=1))
    with pytest.raises(ConfigError, match="--pid is 999999999"):
        under_load.run(LoadBenchOptions(base_url=server.url, pid=999_999_999))
