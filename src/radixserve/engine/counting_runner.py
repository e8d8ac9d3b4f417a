"""A runner without a model: it counts what it was asked to compute and answers with fixed tokens.

It drives the real scheduler and the real cache where only their decisions matter: the walkthrough, simulations, tests.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from radixserve.batch import ForwardBatch
from radixserve.ipc import TokenLogprob


@dataclass(frozen=True, slots=True)
class CountedStep:
    """A step that is already done."""

    token_ids: list[int]
    logprobs: Sequence[TokenLogprob | None] = field(default=())
    prompt_logprobs: Sequence[Sequence[TokenLogprob]] = field(default=())

    def result(self) -> "CountedStep":
        return self


class CountingRunner:
    """`num_steps` and `num_tokens` count what was launched; every sampled token is `token_id`, every prompt certain."""

    def __init__(self, token_id: int = 0) -> None:
        self.token_id = token_id
        self.num_steps = 0
        self.num_tokens = 0

    def launch(self, batch: ForwardBatch) -> CountedStep:
        self.num_steps += 1
        self.num_tokens += len(batch.input_ids)
        num_sampled = len(batch.sampled)
        scores = [[TokenLogprob(self.token_id, 0.0)] * run.length for run in batch.scored]
        return CountedStep([self.token_id] * num_sampled, [None] * num_sampled, scores)
