"""Grammars of a rank that compiles when rank 0 says so: what it keeps, and who waits, is what its messages say."""

from radixserve.engine.grammar_queue import GrammarQueue
from radixserve.engine.ranks.follow import FollowedGrammars
from radixserve.ipc import GrammarFinished
from radixserve.req import Req
from radixserve.sampling_params import Grammar, SamplingParams
from tests.jumpy_grammar import CountingMatcher

WORD = Grammar("regex", "[a-z]+")


class Backend:
    def compile(self, grammar: Grammar) -> "Backend":
        return self

    def matcher(self, *, ignore_eos: bool) -> CountingMatcher:
        return CountingMatcher(1, jumpy=False)


def make_req(rid: str) -> Req:
    return Req(rid, 0, bytes(4), 1, SamplingParams(grammar=WORD), 1, frozenset())


def test_an_aborted_request_leaves_nothing_whether_rank_0_compiles_on_or_not() -> None:
    queue = GrammarQueue(FollowedGrammars(Backend))
    first, second = make_req("first"), make_req("second")
    assert not queue.make_ready(first)
    assert queue.remove(first)
    assert not queue._waiting, "rank 0 may have given up: no message would ever take it out"
    assert queue.release(GrammarFinished(WORD, None)) == [], "and here it had not"
    assert queue.make_ready(second)


def test_who_asks_again_before_the_message_gets_the_grammar() -> None:
    queue = GrammarQueue(FollowedGrammars(Backend))
    first, second = make_req("first"), make_req("second")
    queue.make_ready(first)
    queue.remove(first)
    assert not queue.make_ready(second)
    assert queue.release(GrammarFinished(WORD, None)) == [second]
    assert second.matcher is not None
