"""The page over replicas: it shows one of them, says which, and changes to another."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.replicas.fleet import ask, replicas, wait_for_two
from tests.server.running import RunningServer


def test_a_replica_is_chosen_and_its_tree_is_shown(fleet: RunningServer, open_page: Callable[..., Page]) -> None:
    wait_for_two(fleet)
    first, second = replicas(fleet)
    ask(fleet, "shown on one page")
    holder = next(name for name in (first, second) if "shown on one page" in str(fleet.get(f"/cache/tree?replica={name}")))
    other = second if holder == first else first
    page = open_page(f"{fleet.url}/ui/?replica={other}")
    expect(page.locator("#replica")).to_have_value(other)
    expect(page.locator("#pool-note")).to_contain_text("free")
    assert "shown on one page" not in page.locator("#tree").inner_text()
    page.locator("#replica").select_option(holder)
    expect(page.locator("#replica")).to_have_value(holder)
    expect(page.locator("#tree")).to_contain_text("shown on one")
    page.locator("#search").fill("one page")
    expect(page.locator("#tree-note")).to_contain_text("node")
