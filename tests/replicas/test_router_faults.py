"""Replicas that die or leave: what can be answered is answered, what can't says so, and others take their place."""

import concurrent.futures
import itertools
import json
import os
import subprocess
import sys
from typing import Any

import httpx
import psutil
import pytest

from radixserve.replicas.settings import own_ray_environment
from tests.replicas.fleet import LONG, SETTINGS, TOKEN, ask, processes, replicas, stream, wait_for_two, wait_quiet
from tests.server.running import ROOT, RunningServer, frames, wait_until

REDEPLOY = """
import json, sys
import ray
from ray import serve
from radixserve.config import EngineConfig
from radixserve.replicas.application import replicas
address, model, settings = sys.argv[1:]
ray.init(address=address, log_to_driver=False)
engine = EngineConfig(model=model, **json.loads(settings))
target = replicas(engine, "prefix", num_replicas=2, ray_actor_options={"num_cpus": 1})
serve.run_many([serve.RunTarget(target=target, name="radixserve", route_prefix=None)], wait_for_applications_running=False)
"""


def engines(server: RunningServer) -> list[psutil.Process]:
    return [child for actor in processes(server) for child in actor.children() if "spawn_main" in " ".join(child.cmdline())]


def status(server: RunningServer) -> int:
    return httpx.get(server.url + "/health", timeout=10).status_code


def test_no_request_without_a_token_is_lost_with_its_replica(fleet: RunningServer) -> None:
    """60 requests of 6 groups, twelve at a time; one of two replicas is killed in the middle."""
    wait_for_two(fleet)
    names, victim = set(replicas(fleet)), processes(fleet)[0]
    prompts = [f"kill {group} ".ljust(320, "abcdef"[group]) + f" {number}" for number in range(10) for group in range(6)]
    finished = itertools.count(1)

    def send(prompt: str) -> list[Any]:
        received = stream(fleet, prompt, 60)
        if next(finished) == 20:
            victim.kill()
        return received

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(send, prompts))
    assert not victim.is_running()
    cut = [answer for answer in answers if answer[-1] != "[DONE]"]
    assert len(cut) < 12  # those that were under way there, and had begun
    for *chunks, last in cut:
        assert "the replica that ran this request is gone" in last["error"]["message"]
        assert any(chunk["choices"][0].get("token_ids") for chunk in chunks)
    assert status(fleet) == 200
    wait_for_two(fleet, without=names - set(replicas(fleet)))
    wait_quiet(fleet)


def test_a_replica_ends_with_its_engine_and_streams_hear_of_it(fleet: RunningServer) -> None:
    wait_for_two(fleet)
    names = set(replicas(fleet))
    with httpx.stream("POST", fleet.url + "/v1/completions", json=LONG | {"prompt": "engine"}, timeout=60) as reply:
        text = reply.iter_text()
        received = next(text)
        for engine in engines(fleet):
            engine.kill()
        received += "".join(text)
    *chunks, last = frames(received)
    assert "the replica that ran this request" in last["error"]["message"]
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
    wait_until(lambda: status(fleet) == 503)
    assert fleet.post("/v1/completions", prompt="nobody", max_tokens=1).status_code == 503
    assert httpx.get(fleet.url + "/metrics").status_code == 200
    wait_for_two(fleet, without=names)
    assert status(fleet) == 200
    ask(fleet, "back again")


def test_requests_are_answered_while_the_state_is_started_anew(fleet: RunningServer) -> None:
    wait_for_two(fleet)
    names = set(replicas(fleet))
    (state,) = [
        one for one in psutil.Process(fleet.process.pid).children(recursive=True) if one.name().startswith("ray::_StateAct")
    ]
    state.kill()
    for number in range(3):
        ask(fleet, f"{number} without a state")
        assert status(fleet) == 200
    assert set(replicas(fleet)) == names
    wait_quiet(fleet)


@pytest.mark.slow
def test_a_replica_that_leaves_finishes_what_it_has(fleet: RunningServer) -> None:
    wait_for_two(fleet)
    names = set(replicas(fleet))
    raylet = next(one for one in psutil.Process(fleet.process.pid).children() if "raylet" in one.name())
    address = next(part.partition("=")[2] for part in raylet.cmdline() if part.startswith("--gcs-address"))
    settings = fleet.get("/server_info")["settings"]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        long = [pool.submit(stream, fleet, f"{number} leaving", 4000) for number in range(2)]
        wait_until(lambda: sum(stats["num_running"] for stats in replicas(fleet).values()) == 2)
        command = [sys.executable, "-c", REDEPLOY, address, settings["model"], json.dumps(SETTINGS)]
        environment = os.environ | own_ray_environment({}) | TOKEN | {"PYTHONPATH": str(ROOT / "src")}
        deployed = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, timeout=60)
        assert deployed.returncode == 0, deployed.stderr
        assert not any(one.done() for one in long)
        while not all(one.done() for one in long):
            ask(fleet, "meanwhile")
        for one in long:
            *_, last, done = one.result()
            assert done == "[DONE]"
            assert last["choices"][0]["finish_reason"] == "length"
    wait_for_two(fleet, without=names)
    assert ask(fleet, "afterwards", 4)["usage"]["completion_tokens"] == 4
