"""Requests that wait for their grammar, seen through the engine, with a backend whose compilation the test holds in its hand."""

import threading

import pytest

from radixserve.engine.engine import Engine
from radixserve.engine.grammars import NUM_KEPT, Grammars
from radixserve.errors import InvalidRequestError
from radixserve.ipc import AbortRequest, FlushRequest, GrammarFinished, RequestFailed, UpdateWeightsRequest
from radixserve.sampling_params import Grammar
from tests.hash_runner import hash_engine, solo
from tests.jumpy_grammar import JUMPY, JUMPY_LEN, CountingMatcher, jumpy_solo
from tests.traffic import Traffic

WORD = Grammar("regex", "[a-z]+")
COSTLY = Grammar("regex", "costly")


class CostlyMatcher(CountingMatcher):
    """Forces ten tokens, and comes to a limit of its library at the fourth of them."""

    finished = False

    @property
    def fault(self) -> str:
        return "too many items" if self.left <= 0 else ""

    def forced(self) -> list[int]:
        return [1] * 10


class HeldBackend:
    """Compiles when `allowed` is set. `regex "["` is a bad grammar, a `choice` breaks the compiler."""

    def __init__(self) -> None:
        self.allowed = threading.Event()
        self.begun = threading.Semaphore(0)
        self.compiled: list[Grammar] = []
        self.ignored: list[bool] = []

    def compile(self, grammar: Grammar) -> "HeldGrammar":
        self.begun.release()
        assert self.allowed.wait(10)
        self.compiled.append(grammar)
        if grammar.source == "[":
            raise InvalidRequestError("the regex can't be enforced: [", param="grammar")
        if grammar.kind == "choice":
            raise MemoryError("no more")
        return HeldGrammar(grammar, self.ignored)


class HeldGrammar:
    def __init__(self, grammar: Grammar, ignored: list[bool]) -> None:
        self._grammar = grammar
        self._ignored = ignored

    def matcher(self, *, ignore_eos: bool) -> CountingMatcher:
        self._ignored.append(ignore_eos)
        if self._grammar == COSTLY:
            return CostlyMatcher(4, jumpy=False)
        return CountingMatcher(JUMPY_LEN, jumpy=True) if self._grammar == JUMPY else CountingMatcher(5, jumpy=False)


@pytest.fixture
def backend() -> HeldBackend:
    return HeldBackend()


@pytest.fixture
def engine(backend: HeldBackend) -> Engine:
    return hash_engine(200, grammars=Grammars(lambda: backend))


def wait(engine: Engine) -> None:
    """Until the engine is called to work."""
    called = threading.Event()
    engine.notify(called.set)
    while not engine.has_work:
        assert called.wait(10)
        called.clear()


def test_others_go_on_while_a_grammar_is_compiled(engine: Engine, backend: HeldBackend) -> None:
    traffic = Traffic(engine)
    held = traffic.send([1, 2, 3], 8, grammar=WORD)
    free = traffic.send([1, 2, 3], 8)
    traffic.run()
    assert traffic.ended == {free: "length"}
    assert not engine.has_work
    backend.allowed.set()
    wait(engine)
    traffic.run()
    assert traffic.answers[held] == solo([1, 2, 3], 5)
    assert traffic.ended[held] == "stop"


def test_equal_grammars_are_compiled_once(engine: Engine, backend: HeldBackend) -> None:
    traffic = Traffic(engine)
    for _ in range(3):
        traffic.send([1, 2], 8, grammar=Grammar("regex", "[a-z]+"))
    traffic.step()
    backend.allowed.set()
    wait(engine)
    traffic.run()
    late = traffic.send([1, 2], 8, grammar=WORD)
    traffic.run()
    assert traffic.ended[late] == "stop"
    assert backend.compiled == [WORD]


def test_an_aborted_request_does_not_wait_for_its_grammar(engine: Engine, backend: HeldBackend) -> None:
    traffic = Traffic(engine)
    rid, other = traffic.send([1, 2], 8, grammar=WORD), traffic.send([1, 2], 8, grammar=WORD)
    traffic.step()
    engine.receive(AbortRequest(rid))
    traffic.step()
    assert traffic.ended == {rid: "abort"}
    backend.allowed.set()
    wait(engine)
    traffic.run()
    assert traffic.ended == {rid: "abort", other: "stop"}
    assert engine.stats().finished == {"abort": 1, "stop": 1}


def test_who_waits_for_a_grammar_waits(engine: Engine, backend: HeldBackend) -> None:
    """For those who count, and for those who flush or load weights."""
    traffic = Traffic(engine)
    rid, other = traffic.send([1, 2], 8, grammar=WORD), traffic.send([1, 2], 8, grammar=WORD)
    engine.receive(FlushRequest("flush"))
    engine.receive(UpdateWeightsRequest("weights", "other"))
    traffic.step()
    assert traffic.ended == {"flush": "busy", "weights": "busy"}
    assert engine.stats().num_waiting == 2
    backend.allowed.set()
    wait(engine)
    traffic.run()
    assert traffic.ended[rid] == traffic.ended[other] == "stop"
    assert engine.stats().num_waiting == 0


@pytest.mark.parametrize("ignore_eos", [True, False])
def test_a_matcher_knows_whether_the_end_is_ignored(backend: HeldBackend, ignore_eos: bool) -> None:
    """For who waited for the grammar, and for who found it."""
    engine = hash_engine(200, grammars=Grammars(lambda: backend))
    traffic = Traffic(engine, ignore_eos=ignore_eos)
    backend.allowed.set()
    traffic.send([1, 2], 8, grammar=WORD)
    traffic.step()
    wait(engine)
    traffic.run()
    traffic.send([1, 2], 8, grammar=WORD)
    traffic.run()
    assert backend.ignored == [ignore_eos] * 2


def test_a_grammar_that_nobody_waits_for_takes_no_thread(engine: Engine, backend: HeldBackend) -> None:
    """Of ten, two are compiled already when their requests are aborted; who asks for one of the others again gets it."""
    traffic = Traffic(engine)
    grammars = [Grammar("regex", f"[a-z]{{{number}}}") for number in range(10)]
    rids = [traffic.send([1, 2], 8, grammar=grammar) for grammar in grammars]
    traffic.step()
    backend.begun.acquire()
    backend.begun.acquire()
    for rid in rids:
        engine.receive(AbortRequest(rid))
    traffic.step()
    again = traffic.send([1, 2], 8, grammar=grammars[9])
    traffic.step()
    backend.allowed.set()
    while again not in traffic.ended:
        wait(engine)
        traffic.step()
    assert traffic.ended[again] == "stop"
    assert not set(backend.compiled) & set(grammars[2:9])


def test_an_abort_in_the_step_in_which_the_grammar_is_ready(engine: Engine, backend: HeldBackend) -> None:
    traffic = Traffic(engine)
    rid = traffic.send([1, 2], 8, grammar=WORD)
    traffic.step()
    backend.allowed.set()
    wait(engine)
    engine.receive(AbortRequest(rid))
    traffic.step()
    assert traffic.ended == {rid: "abort"}
    late = traffic.send([1, 2], 8, grammar=WORD)
    traffic.run()
    assert traffic.ended[late] == "stop"
    assert backend.compiled == [WORD]


@pytest.mark.parametrize(
    ("grammar", "words"),
    [(Grammar("regex", "["), "can't be enforced: ["), (Grammar("choice", "[]"), "could not be compiled: MemoryError: no more")],
)
def test_a_failed_compilation_ends_those_who_wait_for_it_and_no_other(
    engine: Engine, backend: HeldBackend, grammar: Grammar, words: str
) -> None:
    traffic = Traffic(engine)
    bad, good = traffic.send([1, 2], 8, grammar=grammar), traffic.send([1, 2], 8)
    traffic.run()
    assert traffic.ended == {good: "length"}
    backend.allowed.set()
    wait(engine)
    [refusal] = engine.step()
    assert isinstance(refusal, RequestFailed)
    assert (refusal.rid, refusal.kind, refusal.param) == (bad, "invalid_request", "grammar")
    assert words in refusal.message
    assert engine.stats().finished == {"error": 1, "length": 1}


def test_an_engine_without_a_backend_refuses_grammars() -> None:
    traffic = Traffic(hash_engine(100))
    rid = traffic.send([1], 2, grammar=WORD)
    traffic.run()
    assert traffic.ended == {rid: "invalid_request"}


def test_the_grammars_that_are_not_used_go_first(backend: HeldBackend) -> None:
    backend.allowed.set()
    grammars = Grammars(lambda: backend)
    done = threading.Event()
    grammars.on_finished = done.set

    def keep(name: str) -> Grammar:
        grammar = Grammar("regex", name)
        done.clear()
        grammars.compile(grammar)
        assert done.wait(10)
        assert grammars.take_finished() == [GrammarFinished(grammar)]
        grammars.keep(grammar)
        return grammar

    first, second = keep("first"), keep("second")
    for number in range(NUM_KEPT - 1):
        assert grammars.find(first) is not None
        keep(str(number))
    assert grammars.find(first) is not None
    assert grammars.find(second) is None


@pytest.mark.parametrize(("num_slots", "page_size"), [(400, 1), (60, 1), (64, 4)])
def test_forced_tokens_are_computed_together_and_change_nothing(backend: HeldBackend, num_slots: int, page_size: int) -> None:
    backend.allowed.set()
    engine = hash_engine(num_slots, page_size, grammars=Grammars(lambda: backend), max_batch_tokens=12)
    traffic = Traffic(engine)
    first = traffic.send([1], 2, grammar=JUMPY)
    engine.step()
    wait(engine)
    traffic.run()
    rids = [traffic.send([1, 2, 3, number, number], 15 + number, grammar=JUMPY) for number in range(20)]
    plain = traffic.send([1, 2, 3, 4], 20)
    traffic.run()
    assert (engine.scheduler.num_preemptions > 0) == (num_slots < 100)
    assert traffic.answers[plain] == solo([1, 2, 3, 4], 20)
    expected = [jumpy_solo(*traffic.asked[rid]) for rid in [first, *rids]]
    assert [traffic.answers[rid] for rid in [first, *rids]] == [tokens for tokens, _ in expected]
    forced = engine.stats().forced_tokens
    assert forced == engine.stats().generated_tokens - 20 - sum(num_chosen for _, num_chosen in expected)
    assert forced > 0


def test_without_jump_forward_each_forced_token_has_a_step_of_its_own(backend: HeldBackend) -> None:
    backend.allowed.set()
    engine = hash_engine(200, grammars=Grammars(lambda: backend, jump_forward=False))
    traffic = Traffic(engine)
    rid = traffic.send([1, 2, 3], 12, grammar=JUMPY)
    traffic.step()
    wait(engine)
    traffic.run()
    assert traffic.answers[rid] == jumpy_solo([1, 2, 3], 12)[0]
    assert engine.stats().num_steps == 12


def test_a_matcher_that_fails_inside_what_it_forces_ends_its_request_alone(backend: HeldBackend) -> None:
    backend.allowed.set()
    engine = hash_engine(200, grammars=Grammars(lambda: backend))
    traffic = Traffic(engine)
    costly, plain = traffic.send([1, 2, 3], 20, grammar=COSTLY), traffic.send([1, 2, 3, 4], 20)
    traffic.step()
    while len(traffic.ended) < 2:
        wait(engine)
        traffic.step()
    assert traffic.ended == {costly: "invalid_request", plain: "length"}
    assert len(traffic.answers[costly]) == 4
    assert traffic.answers[plain] == solo([1, 2, 3, 4], 20)


def test_a_grammar_that_failed_one_request_is_compiled_again_for_the_next(backend: HeldBackend) -> None:
    """Copies of a matcher share its end: who comes later must not meet it."""
    backend.allowed.set()
    engine = hash_engine(200, grammars=Grammars(lambda: backend))
    for number in (1, 2):
        traffic = Traffic(engine)
        rid = traffic.send([1, 2, 3], 20, grammar=COSTLY)
        traffic.step()
        while rid not in traffic.ended:
            wait(engine)
            traffic.step()
        assert traffic.ended == {rid: "invalid_request"}
        assert backend.compiled == [COSTLY] * number
