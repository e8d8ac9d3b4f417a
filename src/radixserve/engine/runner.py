"""What the engine asks of whoever computes a step: the model, or a stand-in that only counts."""

from collections.abc import Sequence
from typing import Protocol

from radixserve.batch import ForwardBatch
from radixserve.ipc import TokenLogprob


class PendingStep(Protocol):
    """A step in flight. On a CPU it is already done when `launch` returns."""

    def result(self) -> "StepResult":
        """Waits for the step. Tokens are in the order of the batch's `sampled`."""


class StepResult(Protocol):
    """`token_ids` [R], negative where nothing can be sampled from the logits; `logprobs` [R], None where none were asked for.

    `prompt_logprobs`: of each of the batch's `scored` runs, one entry a token.
    """

    @property
    def token_ids(self) -> list[int]: ...
    @property
    def logprobs(self) -> Sequence[TokenLogprob | None]: ...
    @property
    def prompt_logprobs(self) -> Sequence[Sequence[TokenLogprob]]: ...


class Runner(Protocol):
    """Computes steps."""

    def launch(self, batch: ForwardBatch) -> PendingStep:
        """Starts one step: copies, forward, sampling."""
