"""The walkthrough on the page: eleven slots, four requests, the same trees as in tests/walkthrough."""

import base64
import hashlib
import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from docs.assets.walkthrough import FILE, walkthrough
from radixserve.server.cache.page import FOLDER
from tests.server.running import RunningServer
from tests.walkthrough.test_walkthrough import FREE, TREES

TREE = """() => window.radixserve.tree.layout.items.filter((item) => item.kind === 'node').map((item) => {
    const group = document.querySelector(`[data-node="${item.id}"]`);
    const path = window.radixserve.state.path(item.id).map((node) => node.text);
    return [path, group.querySelector('.label').textContent, window.radixserve.state.nodes.get(item.id).slots, item.data.time];
})"""
FREE_SLOTS = """() => {
    const {owners} = window.radixserve.pool;
    return [...owners.keys()].filter((slot) => slot > 0 && owners[slot] === 0);
}"""


def test_the_frames_are_what_the_engine_makes() -> None:
    assert FILE.read_bytes() == walkthrough(), "run `make docs`"


def test_the_page_may_run_its_own_scripts_only() -> None:
    page = (FOLDER / "index.html").read_text()
    (importmap,) = re.findall(r'<script type="importmap">(.*?)</script>', page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(importmap.encode()).digest()).decode()
    assert f"script-src 'self' 'sha256-{digest}'" in page
    for file in re.findall(r'"\./(vendor/[^"]+)"', importmap):
        assert (FOLDER / file).exists()


def test_each_request_ends_with_the_tree_of_the_example(server: RunningServer, open_page: Callable[..., Page]) -> None:
    page = open_page(server.url + "/ui?walkthrough")
    expect(page.locator("#step-caption")).to_have_text("A pool of eleven slots, all free. A word is a token here.")
    ends = 0
    while page.locator("#step-next").is_enabled():
        page.locator("#step-next").click()
        if "The answer is given" not in page.locator("#step-caption").inner_text():
            continue
        expected = {path: slots for path, (slots, _) in TREES[ends].items()}
        page.wait_for_function("(number) => document.querySelectorAll('g.item.node').length === number", arg=len(expected))
        shown = page.evaluate(TREE)
        assert {tuple(path): [s for first, last in runs for s in range(first, last + 1)] for path, _, runs, _ in shown} == expected
        assert all(path[-1] == label for path, label, _, _ in shown)
        assert {tuple(path): time for path, _, _, time in shown} == {path: time for path, (_, time) in TREES[ends].items()}
        assert sorted(page.evaluate(FREE_SLOTS)) == sorted(FREE[ends])
        ends += 1
    assert ends == 4
