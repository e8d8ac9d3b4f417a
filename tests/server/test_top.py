"""`radixserve top` against a server."""

import httpx
import pytest

from radixserve.cli import main
from tests.server.running import RunningServer


def test_once_prints_a_table(server: RunningServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    for end in ("one", "two"):
        assert server.post("/v1/completions", prompt="Shared by both:\n" + end, max_tokens=2).status_code == 200
    with pytest.raises(SystemExit, match="0"):
        main(["top", "--once", "--url", server.url])
    printed = capsys.readouterr().out
    assert "Shared by both:\\n" in printed
    assert "hit rate" in printed
    assert "never reused" in printed


def test_without_a_server_it_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise httpx.ConnectError("connection refused")

    monkeypatch.setattr(httpx.Client, "get", refuse)
    with pytest.raises(SystemExit, match="1"):
        main(["top", "--once"])
    assert "8000/server_info: connection refused; name a server with --url" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["0", "-1", "nan"])
def test_it_looks_at_intervals_that_can_be(capsys: pytest.CaptureFixture[str], seconds: str) -> None:
    with pytest.raises(SystemExit, match="1"):
        main(["top", "--every-s", seconds])
    assert "--every-s is" in capsys.readouterr().err
