"""The router's memory against a plain one, and its books after any calls."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from radixserve.routing.held import HeldPages
from radixserve.routing.policies import BALANCE, POLICIES, RECOMPUTE
from radixserve.routing.prompt import PAGE_LEN, Prompt
from radixserve.routing.router import Router

Path = tuple[int, ...]
PATHS = st.lists(st.integers(0, 2), max_size=6).map(tuple)


def pages(path: Path) -> list[int]:
    """A page is named by all that leads to it."""
    return [hash(path[: end + 1]) for end in range(len(path))]


@given(
    calls=st.lists(st.tuples(st.sampled_from(["use", "add", "evict"]), PATHS), max_size=40),
    limit=st.integers(1, 12),
)
@settings(max_examples=200)
def test_whole_prefixes_are_held_and_found(calls: list[tuple[str, Path]], limit: int) -> None:
    """With reports in the order of a tree: parents before children, and children evicted first."""
    held = HeldPages()
    seen: set[Path] = set()
    for what, path in calls:
        seen |= {path[:end] for end in range(1, len(path) + 1)}
        if what == "use":
            held.use(pages(path), limit)
            assert held.num_held(pages(path)) == min(len(path), limit)
        elif what == "add":
            held.add(pages(path), limit)
        else:
            below = [other for other in seen if other[: len(path)] == path]
            held.discard([pages(other)[-1] for other in sorted(below, key=len, reverse=True) if other])
        known = {other for other in seen if held.num_held(pages(other)) == len(other)}
        for other in seen:
            assert len({held.num_held(pages(other), guess) for guess in range(len(other) + 1)}) == 1
        assert len(known) == len(held) <= limit
        assert all(other[:-1] in known for other in known if len(other) > 1)


class RouterMachine(RuleBasedStateMachine):
    """Calls in any order, and what must be true between them."""

    def __init__(self) -> None:
        super().__init__()
        self.router = Router("prefix", max_pages=24)
        self.open: dict[str, tuple[str, int]] = {}
        """Replica and tokens of every request on its way."""
        self.number = 0

    @rule(name=st.sampled_from("abcd"), num_pages=st.integers(1, 20))
    def join(self, name: str, num_pages: int) -> None:
        self._lose(name, self.router.join(name, num_pages * PAGE_LEN))
        assert len(self.router.replicas[name].held) == 0

    @rule(name=st.sampled_from("abcd"))
    def leave(self, name: str) -> None:
        self._lose(name, self.router.leave(name))

    @precondition(lambda self: any(not replica.draining for replica in self.router.replicas.values()))
    @rule(path=PATHS, more=st.integers(1, PAGE_LEN))
    def route(self, path: Path, more: int) -> None:
        prompt = Prompt(pages(path), len(path) * PAGE_LEN + more)
        missing = {name: replica.num_missing(prompt) for name, replica in self.router.replicas.items()}
        expected = self._cheapest(prompt)
        rid, self.number = str(self.number), self.number + 1
        name = self.router.route(rid, prompt)
        assert name == expected
        assert not self.router.replicas[name].draining
        self.open[rid] = name, missing[name]

    @rule(at=st.integers(0, 50))
    def end(self, at: int) -> None:
        rid = str(max(self.number - at, 0))
        if at % 2:
            self.router.started(rid)
        self.router.ended(rid)
        self.open.pop(rid, None)

    @precondition(lambda self: self.router.replicas)
    @rule(at=st.integers(0, 3), what=st.sampled_from(["drain", "flushed", "stored", "removed"]), path=PATHS)
    def report(self, at: int, what: str, path: Path) -> None:
        name = list(self.router.replicas)[at % len(self.router.replicas)]
        match what:
            case "drain":
                self.router.drain(name)
            case "flushed":
                self.router.flushed(name)
            case "stored":
                self.router.stored(name, pages(path))
            case "removed":
                self.router.removed(name, pages(path)[::-1])

    @invariant()
    def counts_are_those_of_open_requests(self) -> None:
        for name, replica in self.router.replicas.items():
            tokens = [tokens for home, tokens in self.open.values() if home == name]
            assert (replica.queue_tokens, replica.num_requests) == (sum(tokens), len(tokens))

    @invariant()
    def memory_is_bounded(self) -> None:
        replicas = self.router.replicas.values()
        assert sum(len(replica.held) for replica in replicas) <= 24
        assert all(len(replica.held) * PAGE_LEN <= replica.num_slots for replica in replicas)

    def _cheapest(self, prompt: Prompt) -> str:
        """By the formula, replica by replica; of equals the one that joined first."""
        choice = [replica for replica in self.router.replicas.values() if not replica.draining]
        share_cost = BALANCE * prompt.num_tokens / (sum(replica.recent_tokens for replica in choice) / len(choice))
        return min(choice, key=lambda r: RECOMPUTE * (r.num_missing(prompt) + share_cost * r.recent_tokens) + r.queue_tokens).name

    def _lose(self, name: str, lost: list[str]) -> None:
        assert lost == [rid for rid, (home, _) in self.open.items() if home == name]
        for rid in lost:
            del self.open[rid]


TestRouterMachine = RouterMachine.TestCase
TestRouterMachine.settings = settings(max_examples=60)


@given(policy=st.sampled_from(sorted(POLICIES)), paths=st.lists(PATHS, max_size=30))
def test_every_policy_gives_every_request_to_somebody(policy: str, paths: list[Path]) -> None:
    router = Router(policy)
    for name in "abc":
        router.join(name, 1000)
    for number, path in enumerate(paths):
        assert router.route(str(number), Prompt(pages(path), len(path) * PAGE_LEN + 1)) in "abc"
    assert sum(replica.num_requests for replica in router.replicas.values()) == len(paths)
