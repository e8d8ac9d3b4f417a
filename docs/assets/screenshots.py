"""Makes the pictures of the live page in this folder: python docs/assets/screenshots.py. Needs chromium and the default model."""

import random
import shutil
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
from playwright.sync_api import Browser, sync_playwright

from radixserve.models.registry import cached
from tests.server.running import running

FOLDER = Path(__file__).parent
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
COOK = "You are a patient cook. Answer in two sentences."
CODER = "You are a terse Python expert. Answer with code only."
TRANSLATOR = "Translate the following text into French and keep its tone."
QUESTIONS = {
    COOK: ["How do I boil an egg?", "How do I make a roux?", "How do I make bread?", "What goes well with leeks?"],
    CODER: ["Write a function that reverses a list.", "Write a function that reads a CSV file.", "Sort tuples by the second item."],
    TRANSLATOR: ["The weather is nice today.", "Where is the station?", "I would like a coffee, please."],
}
ROUNDS = 8
SHOTS = {
    "live-light": ("", "light", 1440, 900),
    "live-dark": ("", "dark", 1440, 900),
    "live-narrow": ("", "light", 430, 1400),
    "walkthrough-light": ("?walkthrough&step=22", "light", 1200, 580),
    "walkthrough-dark": ("?walkthrough&step=22", "dark", 1200, 580),
}


def chat(url: str, messages: list[dict[str, str]], max_tokens: int, salt: str | None) -> dict[str, str]:
    """One turn; returns the answer's message."""
    body = {"messages": messages, "max_tokens": max_tokens, "temperature": 0.8, "cache_salt": salt}
    reply = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).json()
    return {"role": "assistant", "content": reply["choices"][0]["message"]["content"]}


def talk(url: str, seed: int) -> None:
    """A conversation of one or two turns."""
    dice = random.Random(seed)
    system = dice.choice(list(QUESTIONS))
    messages = [{"role": "system", "content": system}, {"role": "user", "content": dice.choice(QUESTIONS[system])}]
    salt = "tenant" if system == TRANSLATOR else None
    messages.append(chat(url, messages, dice.randrange(12, 40), salt))
    if dice.random() < 0.5:
        chat(url, [*messages, {"role": "user", "content": "And then?"}], 16, salt)


@contextmanager
def traffic(url: str) -> Iterator[None]:
    """A few conversations at a time, until the end of the block."""
    over = threading.Event()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda seed: talk(url, seed), range(4 * ROUNDS)))
        nodes = httpx.get(f"{url}/cache/tree").json()["nodes"]
        cook = next(node for node in nodes if "patient cook" in node.get("text", ""))
        httpx.post(f"{url}/cache/pin", json={"node": cook["id"]})

        def go_on(seed: int) -> None:
            while not over.is_set():
                talk(url, seed)
                seed += 4

        for seed in range(3):
            pool.submit(go_on, 1000 + seed)
        try:
            yield
        finally:
            over.set()


def shoot(browser: Browser, url: str, name: str) -> None:
    """One picture."""
    query, scheme, width, height = SHOTS[name]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(f"{url}/ui/{query}")
    page.wait_for_selector("g.item.node")
    page.wait_for_timeout(500 if query else 12_000)  # the charts need some seconds to have a line
    page.screenshot(path=FOLDER / f"{name}.png")
    context.close()


def main() -> None:
    """Makes all of them."""
    chromium, model = shutil.which("chromium"), cached("smollm2-135m")
    assert chromium, "apt install chromium"
    assert model, "radixserve pull smollm2-135m"
    settings = {"served_model_name": "smollm2-135m"}
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder), model, server=settings, num_slots=900, dtype="auto", num_threads=2) as server,
        traffic(server.url),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for name in SHOTS:
            shoot(browser, server.url, name)
        browser.close()


if __name__ == "__main__":
    main()
