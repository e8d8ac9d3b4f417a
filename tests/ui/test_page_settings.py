"""The page with a key, without text, in both themes and on a small screen, and with thousands of nodes."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.server.running import RunningServer, running

OpenPage = Callable[..., Page]

MANY_NODES = """() => {
    const {state, tree} = window.radixserve;
    const nodes = [{id: 1, parent: 0, locks: 0, namespace: {adapter: null, salt: null}}];
    for (let id = 2; id <= 5001; id += 1)
        nodes.push({id, parent: id <= 1500 ? 1 : (id % 1499) + 2, locks: 0, text: `branch ${id}`, tokens: 5,
                    slots: [[5 * id, 5 * id + 4]], created: id, time: id, hits: 0});
    const rest = {clock: 5001, num_slots: 30000, page_size: 1, redacted: false, pins: [], victims: [], requests: []};
    state.apply('snapshot', {...rest, nodes});
    tree.draw();
}"""
COUNTS = """() => {
    const {items} = window.radixserve.tree.layout;
    const hidden = items.filter((item) => item.kind === 'more').reduce((sum, item) => sum + item.hidden, 0);
    return [document.querySelectorAll('g.item.node').length, items.filter((item) => item.kind === 'node').length, hidden];
}"""
SEND = """(url) => fetch(url, {
    method: 'POST', headers: {authorization: 'Bearer open sesame'}, body: JSON.stringify({prompt: 'secret text', max_tokens: 1}),
}).then((reply) => reply.json())"""


def test_the_key_is_asked_for_and_kept_for_the_tab(tiny_model_dir: Path, tmp_path: Path, open_page: OpenPage) -> None:
    with running(tmp_path, tiny_model_dir, num_slots=50, server={"api_key": "open sesame", "ui_redact": True}) as server:
        page = open_page(server.url + "/ui/")
        page.locator("#key").fill("wrong")
        page.locator("#key").press("Enter")
        expect(page.locator("#key-dialog")).to_be_visible()
        page.locator("#key").fill("open sesame")
        page.locator("#key").press("Enter")
        expect(page.locator("#empty")).to_be_visible()
        page.evaluate(SEND, server.url + "/v1/completions")
        expect(page.locator("g.item.node .label")).to_have_text("11 tokens")
        assert "secret" not in page.content()
        page.reload()
        expect(page.locator("g.item.node .label")).to_have_text("11 tokens")
        page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [380, 1600])
def test_nothing_is_wider_than_the_screen(server: RunningServer, open_page: OpenPage, scheme: str, width: int) -> None:
    page = open_page(server.url + "/ui/", color_scheme=scheme, viewport={"width": width, "height": 800})
    expect(page.locator("#pool-note")).to_contain_text("free")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    light = page.evaluate("() => getComputedStyle(document.documentElement).backgroundColor") == "rgb(246, 245, 241)"
    assert light == (scheme == "light")


def test_thousands_of_nodes_are_folded(server: RunningServer, open_page: OpenPage) -> None:
    page = open_page(server.url + "/ui/")
    expect(page.locator("#pool-note")).to_contain_text("free")
    page.evaluate(MANY_NODES)
    drawn, laid_out, hidden = page.evaluate(COUNTS)
    assert drawn < 100
    assert 200 <= laid_out <= 300
    assert hidden > 1000
    page.evaluate("() => { const {tree} = window.radixserve; tree.layout.open(1); tree.draw(); }")
    assert page.evaluate(COUNTS)[1] > laid_out
