"""What the page says is what the engine says: on a live engine, in a real browser."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.server.running import RunningServer, running, wait_until

SHOWN = """() => [...document.querySelectorAll('g.item.node')].map((group) => ({
    id: Number(group.dataset.node),
    text: group.querySelector('.label').textContent,
    slots: group.querySelector('.slots').textContent,
    badge: group.querySelector('.badge').textContent,
    locked: group.classList.contains('locked'),
}))"""
OWNERS = "() => [...window.radixserve.pool.owners]"
PLAIN = re.compile(r"[a-z](?:[ a-z]{0,26}[a-z])?")
"""Texts that are shown as they are."""

CLOCK = "(clock) => window.radixserve.state.clock === clock && window.radixserve.state.requests.size === 0"
OpenPage = Callable[..., Page]


@pytest.fixture
def fresh(server: RunningServer) -> RunningServer:
    server.wait_idle()
    server.post("/flush_cache")
    return server


def ask(server: RunningServer, prompt: str, max_tokens: int = 1, **fields: Any) -> None:
    assert server.post("/v1/completions", prompt=prompt, max_tokens=max_tokens, **fields).status_code == 200


def written(runs: list[list[int]]) -> str:
    texts = [f"{first}–{last}" if first < last else f"{first}" for first, last in runs[:2]]  # noqa: RUF001
    return ", ".join(texts) + (f" +{len(runs) - 2}" if len(runs) > 2 else "")


def assert_true(page: Page, server: RunningServer) -> None:
    """Compares the page with the engine: nodes, texts, slots, owners, locks, victims, sizes."""
    tree = server.get("/cache/tree")
    page.wait_for_function(CLOCK, arg=tree["clock"])
    nodes = {node["id"]: node for node in tree["nodes"] if node["parent"]}
    page.wait_for_function("(number) => document.querySelectorAll('g.item.node').length === number", arg=len(nodes))
    shown = {item["id"]: item for item in page.evaluate(SHOWN)}
    assert set(shown) == set(nodes)
    for number, node in nodes.items():
        assert shown[number]["slots"] == written(node["slots"])
        assert shown[number]["locked"] == (node["locks"] > 0)
        if PLAIN.fullmatch(node["text"]):
            assert shown[number]["text"] == node["text"]
    for turn, number in enumerate(tree["victims"][:3], 1):
        assert shown[number]["badge"] == f"next {turn}"
    owners = [0] * (tree["num_slots"] + tree["page_size"])
    for node in nodes.values():
        for first, last in node["slots"]:
            owners[first : last + 1] = [node["id"]] * (last + 1 - first)
    assert page.evaluate(OWNERS) == owners
    stats = server.stats()
    expect(page.locator("#pool-note")).to_have_text(
        f"{stats['num_slots'] - stats['free_slots']:,} of {stats['num_slots']:,} used, {stats['free_slots']:,} free"
    )


def test_the_page_follows_the_engine(fresh: RunningServer, open_page: OpenPage) -> None:
    ask(fresh, "the quick brown fox")
    page = open_page(fresh.url + "/")
    assert page.url == fresh.url + "/ui/"
    assert_true(page, fresh)
    ask(fresh, "the quick red fox", 3)  # a split
    assert_true(page, fresh)
    ask(fresh, "the quick red fox", 2, cache_salt="tenant")
    assert_true(page, fresh)
    for letter in "abc":
        ask(fresh, letter * 60)  # evictions
        assert_true(page, fresh)
    assert fresh.stats()["evicted_tokens"] > 0
    fresh.post("/flush_cache")
    assert_true(page, fresh)
    expect(page.locator("#empty")).to_be_visible()


def test_requests_show_while_they_run(tiny_model_dir: Path, tmp_path: Path, open_page: OpenPage) -> None:
    """Eight long answers, cut short when the page has shown them."""
    body = {"prompt": "count for me", "n": 8, "max_tokens": 900, "ignore_eos": True, "stream": True}
    with running(tmp_path, tiny_model_dir, num_slots=8000) as server:
        page = open_page(server.url + "/ui/")
        expect(page.locator("#requests .none")).to_be_visible()
        with httpx.stream("POST", server.url + "/v1/completions", json=body, timeout=60):
            request = page.locator("#requests li.request").first
            expect(request).to_contain_text("count for me")
            expect(request).to_contain_text(re.compile("12 tokens: 0 cached, .* computed, .* generated"))
            expect(page.locator("#requests-note")).to_have_text("8 running, 0 waiting")
            request.hover()
            expect(page.locator("g.item.node.lit .label").first).to_have_text("count for m")  # what all eight share
        expect(page.locator("#requests .none")).to_be_visible()
        assert_true(page, server)
        page.close()


def test_what_cannot_be_seen_is_marked(fresh: RunningServer, open_page: OpenPage) -> None:
    ask(fresh, "one\n\ttwo  ")
    page = open_page(fresh.url + "/ui/")
    expect(page.locator("g.item.node .label")).to_have_text("one↵⇥two··")


def test_hovering_connects_nodes_and_slots(fresh: RunningServer, open_page: OpenPage) -> None:
    ask(fresh, "apples")
    ask(fresh, "pears")
    page = open_page(fresh.url + "/ui/")
    expect(page.locator("g.item.node")).to_have_count(2)
    node = page.locator("g.item.node", has_text="pears")
    node.locator(".hit").hover()
    number = int(node.get_attribute("data-node") or 0)
    assert page.evaluate("() => [...window.radixserve.pool.lit]") == [number]
    expect(page.locator("#tip")).to_contain_text("5 tokens")
    slot = next(item["slots"][0][0] for item in fresh.get("/cache/tree")["nodes"] if item.get("text") == "apples")
    box = page.locator("#pool canvas").bounding_box()
    cell, columns = page.evaluate("() => [window.radixserve.pool.cell, window.radixserve.pool.columns]")
    assert box is not None
    page.mouse.move(box["x"] + ((slot - 1) % columns + 0.5) * cell, box["y"] + ((slot - 1) // columns + 0.5) * cell)
    expect(page.locator("g.item.node.lit .label")).to_have_text("apples")
    expect(page.locator("#tip")).to_contain_text(f"slot {slot}")


def test_acts_on_a_node(fresh: RunningServer, open_page: OpenPage) -> None:
    ask(fresh, "keep me")
    ask(fresh, "drop me")
    page = open_page(fresh.url + "/ui/")
    page.locator("g.item.node", has_text="keep me").locator(".hit").click()
    expect(page.locator("#details-text")).to_have_text("keep me")
    page.locator("[data-act=pin]").click()
    expect(page.locator("#toast")).to_have_text("pinned 7 tokens more, 7 in all")
    expect(page.locator("g.item.node.locked .badge")).to_have_text("pinned")
    assert len(fresh.get("/cache/tree")["pins"]) == 1
    page.locator("g.item.node", has_text="drop me").locator(".hit").click()
    page.locator("[data-act=evict]").click()
    page.locator("#ask-dialog button[value=ok]").click()
    expect(page.locator("g.item.node")).to_have_count(1)
    expect(page.locator("#details-card")).to_be_hidden()
    assert fresh.stats()["evictable_slots"] == 0
    page.locator("#flush").click()
    page.locator("#ask-dialog button[value=ok]").click()
    expect(page.locator("#toast")).to_have_text("flushed 7 tokens and ended 1 pins")
    assert_true(page, fresh)


def test_warming_and_searching(fresh: RunningServer, open_page: OpenPage) -> None:
    page = open_page(fresh.url + "/ui/")
    page.locator("#warm").click()
    page.locator("#warm-text").fill("blue whale\nblue wren\n")
    page.locator("#warm-dialog button[value=ok]").click()
    expect(page.locator("#toast")).to_contain_text("of 19 tokens")
    expect(page.locator("g.item.node")).to_have_count(3)
    page.locator("#search").fill("E WR")
    expect(page.locator("g.item.node.found")).to_have_count(1)
    expect(page.locator("g.item.node")).to_have_count(2)
    page.locator("#search").fill("")
    expect(page.locator("g.item.node")).to_have_count(3)


def test_several_pages_watch_one_engine_and_none_is_left_watched(fresh: RunningServer, open_page: OpenPage) -> None:
    pages = [open_page(fresh.url + "/ui/") for _ in range(3)]
    ask(fresh, "for all to see")
    for page in pages:
        assert_true(page, fresh)
        page.close()
    wait_until(lambda: fresh.stats()["num_running"] == 0)
    assert_true(open_page(fresh.url + "/ui/"), fresh)


def test_the_ranks_of_a_split_model_are_named(server: RunningServer, open_page: OpenPage) -> None:
    """Two of them are told to the page: their tree and pool are this one's."""
    page = open_page(server.url + "/ui/")
    expect(page.locator("#pool-legend")).not_to_contain_text("rank")
    ranks = [{"rank": rank, "num_kv_heads": rank + 1, "device": "cpu"} for rank in range(2)]
    page.route("**/server_info", lambda route: route.fulfill(json={"ranks": ranks}))
    page.reload()
    expect(page.locator("#pool-legend")).to_contain_text("rank 0: 1 KV head on cpu")
    expect(page.locator("#pool-legend")).to_contain_text("rank 1: 2 KV heads on cpu")
