"""What `radixserve serve --replicas` can't do is one clear line and exit code 1, before anything is started for it."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from radixserve.cli import main
from radixserve.replicas.settings import own_ray_environment


def run(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """The one line that it ends with."""
    with pytest.raises(SystemExit) as caught:
        main(["serve", *args])
    assert caught.value.code == 1
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = [line for line in err.splitlines() if line.startswith("radixserve: ")]
    return line


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["--replicas", "0"], "radixserve: --replicas is 0: must be at least 1"),
        (["--router", "random"], "radixserve: --router is random: there is one engine to choose; add --replicas 2 or more"),
        (
            ["--replicas", "2", "--record", "a"],
            "radixserve: --record is 'a': replicas can't share it; leave it out or --replicas 1",
        ),
        (["--replicas", "2", "--grace-s", "-1"], "radixserve: --grace-s is -1: must be at least 0"),
    ],
)
def test_settings_that_can_t_be_honoured(capsys: pytest.CaptureFixture[str], args: list[str], line: str) -> None:
    assert run(capsys, *args).startswith(line)


@pytest.mark.parametrize("mode", ["disabled", "DISABLED", "k8s"])
def test_a_ray_that_asks_for_no_token(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    line = run(capsys, "--replicas", "2")
    assert line == f"radixserve: RAY_AUTH_MODE is {mode!r}: then whoever reaches Ray can run code as this user; unset it"


def test_a_ray_of_our_own_has_a_token_that_is_in_no_file() -> None:
    first, second = own_ray_environment({}), own_ray_environment({"RAY_AUTH_MODE": "token"})
    assert len(first["RAY_AUTH_TOKEN"]) == len(second["RAY_AUTH_TOKEN"]) == 64
    assert first["RAY_AUTH_TOKEN"] != second["RAY_AUTH_TOKEN"]
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        assert "RAY_AUTH_TOKEN" not in own_ray_environment({name: "given"})


def test_a_port_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = run(capsys, "--replicas", "2", "--port", str(port))
    assert line.startswith(f"radixserve: can't listen on 127.0.0.1:{port}: ")
    assert line.endswith("choose another --host or --port")


def test_a_cluster_that_does_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    line = run(capsys, "--ray-address", address)
    assert line.startswith(f"radixserve: --ray-address is {address!r}: no cluster answers there: ")


def test_a_model_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no-such-model" in run(capsys, "--replicas", "2", "--port", "0", "--model", "no-such-model")


def test_ray_is_not_installed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "ray" or name == "radixserve.replicas.local"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)
    line = run(capsys, "--replicas", "2")
    assert line == "radixserve: --replicas needs Ray, and ray is missing: pip install 'ray[serve]>=2.60,<2.61'"


@pytest.mark.slow
def test_replicas_that_can_t_start_say_why(tiny_model_dir: Path) -> None:
    command = [sys.executable, "-m", "radixserve.cli", "serve", "--model", str(tiny_model_dir), "--port", "0", "--replicas", "2"]
    ended = subprocess.run([*command, "--eviction-policy", "none-such"], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    assert "none-such" in ended.stderr.splitlines()[-1]
    assert ended.stderr.splitlines()[-1].startswith("radixserve: ")
