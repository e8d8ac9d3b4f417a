"""`/cache/…`: what it says is what the engine has, and what it does is done."""

import asyncio
import hashlib
import json
import threading
from collections.abc import AsyncGenerator, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from radixserve.config import ServerConfig
from radixserve.errors import InvalidRequestError
from radixserve.ipc import GenerateRequest, Output
from radixserve.server.cache.routes import WARM_TOKENS
from radixserve.server.prompts import as_token_ids
from tests.server.fake_engine import FakeClient, http, make_service
from tests.server.running import RunningServer, running, wait_until


@pytest.fixture
def fresh(server: RunningServer) -> Iterator[RunningServer]:
    """The shared server with an empty tree, left without pins."""
    server.wait_idle()
    server.post("/flush_cache")
    yield server
    server.post("/cache/unpin", all=True)


def ask(server: RunningServer, prompt: str, **fields: Any) -> None:
    assert server.post("/v1/completions", prompt=prompt, max_tokens=1, **fields).status_code == 200


def texts(tree: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {node["text"]: node for node in tree["nodes"] if node["parent"]}


def test_the_tree_is_the_engines(fresh: RunningServer) -> None:
    ask(fresh, "the cat sat")
    ask(fresh, "the cat ran", cache_salt=None)
    ask(fresh, "the cat", cache_salt="secret")
    tree, stats = fresh.get("/cache/tree"), fresh.stats()
    found = texts(tree)
    assert set(found) == {"the cat ", "sat", "ran", "the cat"}
    assert found["the cat "]["hits"] == 1
    assert [found[text]["slots"] for text in ("the cat ", "sat")] == [[[1, 8]], [[9, 11]]] or len(found) == 4
    assert sum(node["tokens"] for node in found.values()) == stats["evictable_slots"]
    assert len(found) == stats["num_nodes"]
    salts = [node["namespace"]["salt"] for node in tree["nodes"] if not node["parent"]]
    assert salts[0] is None
    assert salts[1] is not None
    assert "secret" not in json.dumps(tree)
    assert tree["victims"][0] == found["sat"]["id"]


def test_events_are_a_snapshot_and_its_changes(fresh: RunningServer) -> None:
    """Applying the changes to the snapshot gives the tree; the engine is silent again when the viewer is gone."""
    ask(fresh, "one two three")
    frames: list[tuple[str, dict[str, Any]]] = []

    def listen() -> None:
        with httpx.stream("GET", fresh.url + "/cache/events", timeout=30) as reply:
            kind = ""
            for line in reply.iter_lines():
                if line.startswith("event: "):
                    kind = line[7:]
                elif line.startswith("data: "):
                    frames.append((kind, json.loads(line[6:])))
                    if any(node.get("text") == "end" for node in frames[-1][1].get("nodes", [])):
                        return

    listener = threading.Thread(target=listen)
    listener.start()
    wait_until(lambda: bool(frames))
    ask(fresh, "one two four")
    node = texts(fresh.get("/cache/tree"))["three"]["id"]
    assert fresh.post("/cache/evict", node=node).json()["evicted_tokens"] == 5
    ask(fresh, "end")
    listener.join(20)
    (first, snapshot), *later = frames
    assert first == "snapshot"
    nodes = {node["id"]: node for node in snapshot["nodes"]}
    for kind, change in later:
        if kind == "change":
            nodes |= {node["id"]: node for node in change["nodes"]}
            for serial, time, hits, locks in change["used"]:
                nodes[serial] |= {"time": time, "hits": hits, "locks": locks} if nodes[serial]["parent"] else {"locks": locks}
            for serial in change["removed"]:
                nodes.pop(serial, None)
    fresh.wait_idle()
    shown = {text: node["slots"] for text, node in texts({"nodes": list(nodes.values())}).items()}
    assert shown == {text: node["slots"] for text, node in texts(fresh.get("/cache/tree")).items()}


def test_pins_survive_and_requests_that_could_not_run_are_refused(fresh: RunningServer) -> None:
    ask(fresh, "x" * 100)
    pinned = fresh.post("/cache/pin", prompt="x" * 100).json()
    assert pinned["pinned_tokens"] == 100
    for letter in "abcdef":
        ask(fresh, letter * 180)
    assert pinned["node"] in {node["id"] for node in fresh.get("/cache/tree")["nodes"]}
    assert fresh.stats()["protected_slots"] == 100
    refused = fresh.post("/v1/completions", prompt="y" * 201, max_tokens=1)
    assert refused.status_code == 400
    assert "300, 100 of them pinned" in refused.json()["error"]["message"]
    ask(fresh, "x" * 100 + "y" * 200)  # what is pinned is its own prefix
    assert fresh.post("/cache/unpin", node=pinned["node"]).json()["ended_pins"] == 1
    ask(fresh, "y" * 201)
    fresh.wait_idle()


def test_a_pinned_subtree_keeps_all_its_leaves(fresh: RunningServer) -> None:
    for word in ("red", "blue", "green"):
        ask(fresh, "colours: " + word)
    top = texts(fresh.get("/cache/tree"))["colours: "]["id"]
    assert fresh.post("/cache/pin", node=top, subtree=True).json()["pinned_tokens"] == 21
    evicted = fresh.post("/cache/evict", node=top).json()
    assert (evicted["evicted_tokens"], evicted["kept_tokens"]) == (0, 21)
    assert fresh.post("/flush_cache").json()["message"] == "flushed 21 tokens and ended 3 pins"


def test_what_is_exported_can_be_warmed(fresh: RunningServer) -> None:
    ask(fresh, "keep this one")
    ask(fresh, "keep that one", cache_salt="s")
    lines = httpx.get(fresh.url + "/cache/export").text
    refused = httpx.post(fresh.url + "/cache/warm", content=lines)
    assert (refused.status_code, "prompt 2" in refused.text, "add the cache_salt" in refused.text) == (400, True, True)
    lines = "".join(line.replace('"salt"', '"cache_salt":"s","salt"') + "\n" for line in lines.splitlines())
    assert [json.loads(line)["text"] for line in lines.splitlines()] == ["keep this one", "keep that one"]
    before = sorted(texts(fresh.get("/cache/tree")))
    fresh.post("/flush_cache")
    warmed = httpx.post(fresh.url + "/cache/warm", content=lines).json()
    assert (warmed["prompts"], warmed["prompt_tokens"], warmed["cached_tokens"]) == (2, 26, 0)
    fresh.wait_idle()
    assert sorted(texts(fresh.get("/cache/tree"))) == before
    again = httpx.post(fresh.url + "/cache/warm", content="keep this one\n", headers={"content-type": "text/plain"}).json()
    assert again["cached_tokens"] == 12


def test_a_cache_salt_is_shown_nowhere_in_clear(fresh: RunningServer) -> None:
    salt = "tenant-7-secret"
    headers = {"x-request-id": "asked"}
    for _ in range(2):
        body = {"prompt": "a salted prompt", "max_tokens": 1, "cache_salt": salt, "explain_cache": True}
        assert httpx.post(fresh.url + "/v1/completions", json=body, headers=headers).status_code == 200
    fresh.wait_idle()
    shown = [
        httpx.get(fresh.url + path).text for path in ("/cache/tree", "/cache/export", "/cache/top", "/metrics", "/server_info")
    ]
    shown.append(httpx.get(fresh.url + "/cache/explain?request_id=asked").text)
    guesses = [hash_(salt.encode()).hexdigest()[:6] for hash_ in (hashlib.sha256, hashlib.blake2b, hashlib.md5, hashlib.sha1)]
    for text in shown:
        assert text
        assert salt not in text
        assert not any(f'"{guess}' in text for guess in guesses), "a salt can't be found by trying likely ones"
    digest = json.loads(shown[1])["salt"]
    assert f'"salt":"{digest}"' in shown[0], "namespaces go by the same name everywhere"
    assert f'"salt":"{digest}"' in shown[2]


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/cache/warm", DEEP),
        ("/cache/warm", '{"messages": ' + DEEP),
        ("/cache/pin", DEEP),
        ("/tokenize", '{"messages": ' + DEEP),
        ("/generate", '{"text": "x", "sampling_params": ' + DEEP),
        ("/v1/completions", '{"prompt": ' + DEEP),
        ("/v1/responses", '{"input": ' + DEEP),
        ("/v1/messages", '{"messages": ' + DEEP),
        *(
            ("/v1/completions", json.dumps({"prompt": "x", "max_tokens": 1, **field}))
            for field in (
                {"guided_json": DEEP},
                {"guided_json": '{"a":' * 100_000},
                {"structured_outputs": {"structural_tag": DEEP}},
                {"guided_json": DEEP + "]" * 100_000},
            )
        ),
        *(
            ("/v1/completions", '{"prompt": "x", "max_tokens": 1, "guided_json": ' + '{"not":' * depth + inner + "}" * (depth + 1))
            for inner, depth in (('{"type":"string"}', 150), *(("{}", depth) for depth in (300, 500, 900, 950, 990)))
        ),
    ],
)
def test_json_that_is_nested_too_deeply_is_refused(fresh: RunningServer, path: str, body: str) -> None:
    refused = httpx.post(fresh.url + path, content=body, headers={"content-type": "application/json"})
    assert refused.status_code == 400, refused.text
    assert len(refused.text) < 2_000


def test_search_and_details(fresh: RunningServer) -> None:
    ask(fresh, "a lion eats")
    ask(fresh, "a lion sleeps")
    found = texts(fresh.get("/cache/tree"))
    assert fresh.get("/cache/search?text=LION S")["nodes"] == [found["sleeps"]["id"]]  # over the border of two edges
    details = fresh.get(f"/cache/node/{found['sleeps']['id']}")
    assert (details["edge_text"], details["prefix_text"], details["prefix_tokens"]) == ("sleeps", "a lion sleeps", 13)


@pytest.mark.parametrize(
    ("path", "body", "status", "part"),
    [
        ("/cache/pin", {}, 400, "either prompt or messages"),
        ("/cache/pin", {"prompt": "never seen"}, 400, "nothing of this prompt is in the cache"),
        ("/cache/pin", {"node": 987654}, 400, "node 987654 is not in the tree"),
        ("/cache/pin", {"node": 18446744073709551616}, 400, "18446744073709551616"),
        ("/cache/unpin", {}, 400, "either node or all"),
        ("/cache/unpin", {"node": 987654}, 400, "not in the tree"),
        ("/cache/evict", {}, 400, "node is missing"),
        ("/cache/evict", {"node": "a"}, 400, "node"),
    ],
)
def test_bad_acts_say_what_is_wrong(fresh: RunningServer, path: str, body: dict[str, Any], status: int, part: str) -> None:
    reply = fresh.post(path, **body)
    assert reply.status_code == status
    assert part in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("lines", "part"),
    [
        ("", "has no prompts"),
        ("not json", "line 1 is not a prompt"),
        ('"a"\n{"prompt": [-1]}', "prompt 2"),
        ('{"a": 1}', "prompt 1"),
    ],
)
def test_bad_prompt_files_say_what_is_wrong(fresh: RunningServer, lines: str, part: str) -> None:
    reply = httpx.post(fresh.url + "/cache/warm", content=lines)
    assert reply.status_code == 400
    assert part in reply.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/cache/top?count=", "/cache/export?node=", "/cache/node/"])
@pytest.mark.parametrize("number", ["9" * 5000, "-1", "x"])
def test_numbers_in_urls_that_are_none_or_too_long_are_refused(tiny_model_dir: Path, path: str, number: str) -> None:
    assert asyncio.run(_get(tiny_model_dir, path + number)) == 400


@pytest.mark.parametrize("token_id", [-1, 2**31, 2**63, 10**20, -(10**20)])
def test_token_ids_of_any_size_are_refused_with_their_place(token_id: int) -> None:
    with pytest.raises(InvalidRequestError, match=f"prompt holds token id {token_id} at position 1"):
        as_token_ids([0, token_id], 259)


async def _get(model: Path, path: str, headers: dict[str, str] | None = None, **config: Any) -> int:
    async with http(make_service(model, FakeClient(), ServerConfig(**config))) as client:
        return (await client.get(path, headers=headers)).status_code


@pytest.mark.parametrize("path", ["/cache/tree", "/cache/events", "/cache/export", "/cache/search?text=a", "/cache/node/1"])
def test_prompts_are_shown_on_loopback_or_with_a_key_only(tiny_model_dir: Path, path: str) -> None:
    assert asyncio.run(_get(tiny_model_dir, path, host="0.0.0.0")) == 403
    assert asyncio.run(_get(tiny_model_dir, path, ui="off")) == 403
    assert asyncio.run(_get(tiny_model_dir, path, host="0.0.0.0", api_key="k")) == 401


def test_other_sites_cannot_act(fresh: RunningServer) -> None:
    ask(fresh, "still here")
    node = texts(fresh.get("/cache/tree"))["still here"]["id"]
    reply = httpx.post(fresh.url + "/cache/evict", json={"node": node}, headers={"sec-fetch-site": "cross-site"})
    assert reply.status_code == 403
    assert "still here" in texts(fresh.get("/cache/tree"))


def test_redacted_means_no_text(tiny_model_dir: Path, tmp_path: Path) -> None:
    with running(tmp_path, tiny_model_dir, server={"ui_redact": True}, num_slots=300) as server:
        ask(server, "a secret")
        tree = httpx.get(server.url + "/cache/tree").text
        assert "secret" not in tree
        assert json.loads(tree)["redacted"]
        for path in ("/cache/export", "/cache/search?text=secret"):
            assert httpx.get(server.url + path).status_code == 403
        details = server.get(f"/cache/node/{json.loads(tree)['nodes'][1]['id']}")
        assert (details["prefix_text"], details["prefix_tokens"]) == ("", 8)


class WarmedClient(FakeClient):
    """Keeps what it was asked, call by call."""

    def __init__(self) -> None:
        super().__init__(texts="a")
        self.calls: list[list[GenerateRequest]] = []
        self.num_open = 0

    async def generate(self, requests: Sequence[GenerateRequest]) -> AsyncGenerator[tuple[int, Output], None]:
        self.calls.append(list(requests))
        self.num_open += 1
        assert self.num_open == 1, "the next prompts wait for these"
        async for found in super().generate(requests):
            yield found
        self.num_open -= 1


@pytest.mark.parametrize("lengths", [[80] * 200, [1] * 5_000, [1, 80] * 60, [7]])
def test_warming_gives_way_to_other_requests(tiny_model_dir: Path, lengths: list[int]) -> None:
    client = WarmedClient()

    async def warm() -> httpx.Response:
        async with http(make_service(tiny_model_dir, client)) as session:
            lines = "\n".join("x" * length for length in lengths)
            return await session.post("/cache/warm", content=lines, headers={"content-type": "text/plain"})

    answered = asyncio.run(warm())
    assert (answered.status_code, answered.json()["prompts"]) == (200, len(lengths))
    assert [len(request.prompt_ids) // 4 for request in client.requests] == lengths
    assert all(request.priority < -1_000_000 for request in client.requests)
    assert all(0 < sum(len(request.prompt_ids) // 4 for request in call) <= WARM_TOKENS for call in client.calls)
    assert len(client.calls) <= 1 + 2 * sum(lengths) // WARM_TOKENS
