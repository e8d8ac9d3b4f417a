"""A real server in processes of its own, for tests."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil

from radixserve.config import EngineConfig, ServerConfig

ROOT = Path(__file__).parents[2]
PROGRAM = """
import json, sys
from radixserve.config import EngineConfig, ServerConfig
from radixserve.server.app import serve
engine, server = (json.loads(text) for text in sys.argv[1:])
sys.exit(serve(EngineConfig(**engine), ServerConfig(**server)))
"""


PATIENCE_S = 180
"""After which a test fails that waits for another process: only then, however busy the machine."""

T = TypeVar("T")


@dataclass
class RunningServer:
    """`url` is None when it did not start; `log` is what it wrote to stderr."""

    process: "subprocess.Popen[str]"
    url: str
    log_file: Path

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    @property
    def engine(self) -> psutil.Process:
        """The engine's process."""
        children = psutil.Process(self.process.pid).children()
        return next(child for child in children if "spawn_main" in " ".join(child.cmdline()))

    def get(self, path: str) -> Any:
        return httpx.get(self.url + path, timeout=PATIENCE_S).json()

    def post(self, path: str, **body: Any) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=PATIENCE_S)

    def post_raw(self, path: str, body: str) -> httpx.Response:
        return httpx.post(self.url + path, content=body.encode(), timeout=PATIENCE_S)

    def stats(self) -> dict[str, Any]:
        """The engine's, as of now."""
        info = wait_for(lambda: self.get("/server_info"), lambda info: info["stats_age_s"] == 0)
        return info["stats"]

    def wait_idle(self) -> dict[str, Any]:
        """Waits until no request waits or runs; every slot must then be free or evictable."""
        stats = wait_for(self.stats, lambda stats: stats["num_running"] == 0 == stats["num_waiting"])
        assert stats["protected_slots"] == 0 == stats["request_slots"]
        assert stats["free_slots"] + stats["evictable_slots"] == stats["num_slots"]
        return stats


def launch(
    tmp_path: Path, model: Path | str, engine: dict[str, Any], server: dict[str, Any], program: str = PROGRAM
) -> RunningServer:
    """Starts a server and returns at once. `program`: what runs, with the settings of engine and server as its arguments."""
    EngineConfig(**engine), ServerConfig(**server)  # misspelt settings fail here
    settings = [json.dumps({"model": str(model)} | engine), json.dumps({"port": 0} | server)]
    log_file = tmp_path / "server.log"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_WAIT_POLICY": "PASSIVE"}
    with log_file.open("w") as log:
        command = [sys.executable, "-c", program, *settings]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    return RunningServer(process, "", log_file)


@contextlib.contextmanager
def running(
    tmp_path: Path, model: Path, *, server: dict[str, Any] | None = None, program: str = PROGRAM, **engine: Any
) -> Iterator[RunningServer]:
    """A server that is ready, on a free port, in float32."""
    this = launch(tmp_path, model, {"dtype": "float32", "device": "cpu", "num_threads": 1} | engine, server or {}, program)
    assert this.process.stdout is not None
    try:
        for line in this.process.stdout:
            if "http://" in line:
                this.url = line.strip()
                break
        assert this.url, this.log
        yield this
    finally:
        this.process.kill()
        this.process.wait()
        this.process.stdout.close()


def wait_until(condition: Callable[[], bool]) -> None:
    """Polls another process's state."""
    wait_for(condition, bool)


def wait_for(look: Callable[[], T], is_right: Callable[[T], bool]) -> T:
    """Looks at another process's state until it is right; returns what was seen then."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_right(seen := look()):
        assert time.monotonic() < deadline, f"waited too long, last for {seen}"
        time.sleep(0.01)
    return seen


def frames(text: str) -> list[Any]:
    """The data of a server-sent event stream, strictly: JSON objects, and `[DONE]` as a string, nothing else."""
    assert text.endswith("\n\n")
    found = []
    for frame in text.removesuffix("\n\n").split("\n\n"):
        assert frame.startswith("data: ")
        assert "\n" not in frame
        data = frame.removeprefix("data: ")
        found.append(data if data == "[DONE]" else json.loads(data))
    return found
