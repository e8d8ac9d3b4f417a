"""What tests ask of a running server over replicas."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.server.running import PATIENCE_S, RunningServer, frames, running, wait_until

TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "6c0ffee" * 8}
"""What lets others than the server speak to its Ray."""
PROGRAM = f"""
import json, os, sys
os.environ |= {TOKEN}
from radixserve.config import EngineConfig, ReplicaConfig, ServerConfig
from radixserve.replicas.settings import own_ray_environment
os.environ |= own_ray_environment(os.environ)
from radixserve.replicas.local import serve_replicas
engine, server = (json.loads(text) for text in sys.argv[1:])
sys.exit(serve_replicas(EngineConfig(**engine), ServerConfig(**server), ReplicaConfig(replicas=2)))
"""
COUNTS = tuple(
    f"radixserve_{name}{{" for name in ("router_queue_tokens", "router_requests", "running_requests", "waiting_requests")
)
GREEDY = {"temperature": 0, "ignore_eos": True}
LONG = GREEDY | {"max_tokens": 15_000, "stream": True}
SETTINGS = {"num_slots": 20_000, "dtype": "float32", "device": "cpu", "num_threads": 1}


@contextlib.contextmanager
def running_fleet(tmp_path: Path, model: Path) -> Iterator[RunningServer]:
    """A server over two replicas. When it is told to stop, it must go with exit code 0 and leave no process behind."""
    with running(tmp_path, model, program=PROGRAM, server={"served_model_name": "tiny"}, **SETTINGS) as server:
        yield server
        children = psutil.Process(server.process.pid).children(recursive=True)
        server.process.terminate()
        assert server.process.wait(timeout=PATIENCE_S) == 0, server.log
        _, left = psutil.wait_procs(children, timeout=15)
        assert left == []


def replicas(server: RunningServer) -> dict[str, dict[str, Any]]:
    """Figures of each, by name."""
    return {name: found["stats"] for name, found in server.get("/server_info").get("replicas", {}).items()}


def processes(server: RunningServer) -> list[psutil.Process]:
    """Those of the replicas' actors."""
    found = []
    for process in psutil.Process(server.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if " ".join(process.cmdline()).startswith("ray::ServeReplica:radixserve:Engine"):  # and what it does
                found.append(process)
    return found


def wait_for_two(server: RunningServer, *, without: set[str] | frozenset[str] = frozenset()) -> None:
    """Waits until there are two replicas, none of them one of `without`."""
    wait_until(lambda: len(names := replicas(server).keys()) == 2 and not names & without)


def counts(server: RunningServer) -> list[float]:
    """Of requests and their tokens, as the replicas and the router count them. They are up to two seconds old."""
    text = httpx.get(server.url + "/metrics", timeout=10).text
    return [float(line.split()[-1]) for line in text.splitlines() if line.startswith(COUNTS)]


def wait_quiet(server: RunningServer) -> None:
    """Waits until no replica has a request, nor one in the router's counts."""
    wait_until(lambda: not any(counts(server)))


def num_ended(server: RunningServer, reason: str) -> int:
    """Requests that ended so."""
    return sum(stats["finished"].get(reason, 0) for stats in replicas(server).values())


def ask(server: RunningServer, prompt: str, max_tokens: int = 8) -> dict[str, Any]:
    """A completion that is not streamed."""
    reply = server.post("/v1/completions", prompt=prompt, max_tokens=max_tokens, **GREEDY)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def stream(server: RunningServer, prompt: str, max_tokens: int = 8) -> list[Any]:
    """The frames of a completion, with one for each token, whether it has text or not."""
    body = GREEDY | {"prompt": prompt, "max_tokens": max_tokens, "stream": True, "return_token_ids": True}
    reply = httpx.post(server.url + "/v1/completions", json=body, timeout=120)
    assert reply.status_code == 200, reply.text
    return frames(reply.text)
