"""An engine tells which pages its cache took in and lost, once it is asked to."""

from radixserve.ipc import FlushRequest, GenerateRequest, PageNews, ReportPages
from radixserve.routing.prompt import PAGE_LEN, Prompt
from radixserve.sampling_params import SamplingParams
from radixserve.tokens import token_bytes
from tests.hash_runner import hash_engine

TOKENS = token_bytes([at % 50 for at in range(2 * PAGE_LEN + 1)])


def changes(*, asked: bool) -> list[tuple[str, list[int]]]:
    """What is told of a prompt of two pages and of a flush after it."""
    engine = hash_engine(4 * PAGE_LEN)
    told: list[tuple[str, list[int]]] = []
    for message in [
        *([ReportPages()] if asked else []),
        GenerateRequest("a", TOKENS, SamplingParams(max_tokens=1)),
        FlushRequest("b"),
    ]:
        engine.receive(message)
        while engine.has_work:
            told += [(c.kind, c.pages) for news in engine.step() if isinstance(news, PageNews) for c in news.changes]
    return told


def test_pages_are_told_as_they_come_and_go() -> None:
    first, second = Prompt.of(TOKENS).pages
    assert changes(asked=True) == [("stored", [first]), ("stored", [second]), ("flushed", [])]


def test_nothing_is_told_unasked() -> None:
    assert changes(asked=False) == []
