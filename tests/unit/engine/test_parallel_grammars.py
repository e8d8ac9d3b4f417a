"""Grammars of a rank that compiles when rank 0 says so: what it keeps, and who waits, is what its messages say."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from radixserve.engine.grammar_queue import GrammarQueue
from radixserve.engine.model_runner import ForwardRunner
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


def test_a_rank_that_samples_nothing_asks_for_the_same_masks() -> None:
    """A matcher counts its work: one that is asked for less would come to its limit at another token than that of rank 0."""
    asked: list[str] = []

    class Watched(CountingMatcher):
        def fill_mask(self, mask: np.ndarray) -> None:
            asked.append(f"{len(mask)} words")
            super().fill_mask(mask)

    decoder: Any = SimpleNamespace(
        config=SimpleNamespace(vocab_size=70),
        steps=lambda _pool: lambda _batch: None,
        forward=lambda *_: None,
        logits=lambda *_: None,
    )
    batch: Any = SimpleNamespace(sampled=[make_req("with"), make_req("without")], scored=[], copies=[], logits_rows=None)
    batch.to = lambda _device: batch
    batch.sampled[0].matcher = Watched(1, jumpy=False)
    pool: Any = SimpleNamespace(k_buffer=torch.zeros(1))
    ForwardRunner(decoder, pool).launch(batch)
    assert asked == ["3 words"]
