"""A browser, and pages of it that fail a test when their console does. Needs Debian's chromium; nothing is downloaded."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.server.running import RunningServer, running

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For a module at most: Playwright's event loop goes on until it is stopped, and other tests run loops of their own."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("there is no chromium: `apt install chromium` to test the live page")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


def strange(url: str, host: str) -> bool:
    """Whether an address is of another host."""
    return url.startswith("http") and url.split("/")[2] != host


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a page at an address. Whatever it complains about, or asks of another host, fails the test."""
    complaints: list[str] = []
    contexts = []

    def open_(url: str, **options: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, "reduced_motion": "reduce"} | options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        host = url.split("/")[2]
        page.on("request", lambda asked: complaints.append(asked.url) if strange(asked.url, host) else None)
        page.goto(url)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert [text for text in complaints if "401 (Unauthorized)" not in text] == []


@pytest.fixture(scope="module")
def server(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(tmp_path_factory.mktemp("ui"), tiny_model_dir, num_slots=120, server={"served_model_name": "tiny"}) as this:
        yield this
