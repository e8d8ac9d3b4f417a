"""Two real replicas behind one address: every request goes well, and goes where its prefix is."""

import asyncio
import concurrent.futures
import ipaddress
from collections.abc import Sequence
from typing import Any

import httpx
import psutil
import pytest

from tests.replicas.fleet import GREEDY, LONG, ask, counts, num_ended, processes, replicas, stream, wait_for_two, wait_quiet
from tests.server.running import RunningServer, frames, wait_until

PREFIX_LEN = 320
"""Of a group's prompts, in characters, which are tokens here: five pages of the router."""


def prompts(what: str) -> list[list[str]]:
    """Rounds in which each of six groups sends one prompt: its prefix and an end of its own."""
    prefixes = [f"{what} {group} ".ljust(PREFIX_LEN, "abcdef"[group]) for group in range(6)]
    return [[f"{prefix} question {number}" for prefix in prefixes] for number in range(10)]


def cached(reply: dict[str, Any]) -> int:
    return int(reply["usage"]["prompt_tokens_details"]["cached_tokens"])


def send_all(server: RunningServer, texts: Sequence[str]) -> list[dict[str, Any]]:
    with concurrent.futures.ThreadPoolExecutor(len(texts)) as pool:
        return list(pool.map(lambda text: ask(server, text), texts))


def test_groups_stay_where_their_prefix_is_and_replicas_share_the_work(fleet: RunningServer) -> None:
    """60 requests of 6 groups."""
    wait_for_two(fleet)
    wait_quiet(fleet)
    before = replicas(fleet)
    first, *later = [send_all(fleet, texts) for texts in prompts("affinity")]
    assert all(cached(reply) < PREFIX_LEN for reply in first)
    assert all(cached(reply) >= PREFIX_LEN for replies in later for reply in replies)

    def share() -> list[int]:
        return [stats["prompt_tokens"] - before[name]["prompt_tokens"] for name, stats in replicas(fleet).items()]

    total = sum(reply["usage"]["prompt_tokens"] for replies in (first, *later) for reply in replies)
    wait_until(lambda: sum(share()) >= total)  # and a little more, if figures from before came late
    assert max(share()) / (total / 2) < 1.5


def test_a_stream_says_what_a_whole_reply_says(fleet: RunningServer) -> None:
    whole = ask(fleet, "the same", 24)["choices"][0]
    *chunks, done = stream(fleet, "the same", 24)
    assert done == "[DONE]"
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole["text"]
    assert chunks[-1]["choices"][0]["finish_reason"] == whole["finish_reason"] == "length"


def test_several_prompts_and_choices_in_one_request(fleet: RunningServer) -> None:
    body = GREEDY | {"prompt": ["one", "two", "three"], "n": 2, "max_tokens": 5}
    choices = fleet.post("/v1/completions", **body).json()["choices"]
    assert [choice["index"] for choice in choices] == list(range(6))
    assert [choice["text"] for choice in choices[::2]] == [ask(fleet, text, 5)["choices"][0]["text"] for text in body["prompt"]]


def test_a_chat_and_a_refusal_pass_through(fleet: RunningServer) -> None:
    reply = fleet.post("/v1/chat/completions", messages=[{"role": "user", "content": "hi"}], max_tokens=4).json()
    assert reply["model"] == "tiny"
    assert reply["usage"]["completion_tokens"] == 4
    regex = fleet.post("/v1/completions", prompt="a", structured_outputs={"regex": "["})
    assert regex.status_code == 400
    too_long = fleet.post("/v1/completions", prompt="a" * 17_000)
    assert too_long.status_code == 400
    assert "16384" in too_long.text


def test_a_request_is_explained_wherever_it_ran(fleet: RunningServer) -> None:
    headers = {"x-request-id": "explain-me"}
    httpx.post(fleet.url + "/v1/completions", json=GREEDY | {"prompt": "why?", "max_tokens": 2}, headers=headers, timeout=60)
    assert len(fleet.get("/cache/explain?request_id=explain-me")["explanations"]) == 1


@pytest.mark.parametrize("streamed", [True, False])
def test_a_client_that_leaves_ends_its_request(fleet: RunningServer, streamed: bool) -> None:
    async def leave() -> None:
        async with httpx.AsyncClient(timeout=60) as client:
            body = LONG | {"prompt": "x", "stream": streamed}
            sending = asyncio.create_task(client.post(fleet.url + "/v1/completions", json=body))
            while sum(map(bool, counts(fleet))) < 3:  # both sides count it
                await asyncio.sleep(0.05)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    wait_quiet(fleet)
    before = num_ended(fleet, "abort")
    asyncio.run(leave())
    wait_until(lambda: num_ended(fleet, "abort") == before + 1)
    wait_quiet(fleet)


def test_an_abort_ends_a_request_with_what_it_has(fleet: RunningServer) -> None:
    headers, before = {"x-request-id": "abort-me"}, num_ended(fleet, "abort")
    with httpx.stream("POST", fleet.url + "/v1/completions", json=LONG | {"prompt": "x"}, headers=headers, timeout=60) as reply:
        text = reply.iter_text()
        received = next(text)
        assert fleet.post("/abort_request", rid="abort-me").json() == {"aborted": 1}
        received += "".join(text)
    *_, last, done = frames(received)
    assert last["choices"][0]["finish_reason"] == "abort"
    assert done == "[DONE]"
    wait_until(lambda: num_ended(fleet, "abort") == before + 1)
    wait_quiet(fleet)


def test_metrics_and_the_page_s_data_say_which_replica(fleet: RunningServer) -> None:
    wait_for_two(fleet)
    first, second = replicas(fleet)
    metrics = httpx.get(fleet.url + "/metrics").text
    assert "radixserve_replicas 2.0" in metrics
    for name in (first, second):
        assert f'radixserve_engine_up{{replica="{name}"}} 1.0' in metrics
        assert fleet.get(f"/cache/tree?replica={name}")["num_slots"] == 20_000
        with httpx.stream("GET", f"{fleet.url}/cache/events?replica={name}", timeout=30) as reply:
            assert next(reply.iter_lines()) == "event: snapshot"
    unknown = httpx.get(fleet.url + "/cache/tree?replica=none")
    assert unknown.status_code == 404
    assert f"there are {first}, {second}" in unknown.text


def test_acts_name_a_replica_and_a_flush_empties_all(fleet: RunningServer) -> None:
    wait_for_two(fleet)
    ask(fleet, "pin this prompt")
    unnamed = fleet.post("/cache/pin", prompt="pin this")
    assert unnamed.status_code == 400
    assert "replica is missing" in unnamed.text
    pinned = [fleet.post(f"/cache/pin?replica={name}", prompt="pin this").status_code for name in replicas(fleet)]
    assert sorted(pinned) == [200, 400]  # it is cached in one of them
    wait_quiet(fleet)
    assert fleet.post("/flush_cache").json()["message"].count("flushed") == 2
    assert cached(ask(fleet, "pin this prompt")) == 0


def test_ray_listens_where_only_this_machine_connects(fleet: RunningServer) -> None:
    """But for a port of each replica's, where Ray Serve takes calls from its other machines, with the token."""
    outside = []
    front = psutil.Process(fleet.process.pid)
    for process in [front, *front.children(recursive=True)]:
        for connection in process.net_connections(kind="inet"):
            address = ipaddress.ip_address(connection.laddr.ip) if connection.laddr else None
            mapped = getattr(address, "ipv4_mapped", None) or address
            if connection.status == psutil.CONN_LISTEN and mapped is not None and not mapped.is_loopback:
                outside.append(process.pid)
    assert sorted(outside) == sorted(process.pid for process in processes(fleet))
