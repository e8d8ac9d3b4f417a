"""The state of one request inside the engine.

A request's tokens are `prompt` followed by `output_ids`. KV exists for the first `computed_len` of them. Each step computes the
next `extend_len` tokens or a chunk of them; when all are computed, the model's logits give one more.
"""

from dataclasses import dataclass, field

import numpy as np

from radixserve.cache.lease import Lease
from radixserve.explanation import Explanation
from radixserve.grammar import Matcher
from radixserve.ipc import FinishReason, TokenLogprob
from radixserve.sampling_params import SamplingParams
from radixserve.tokens import SHARED, TOKEN_BYTES, ExtraKey, as_ids, token_bytes


@dataclass(slots=True, eq=False)
class Req:
    """One request. `arrival` numbers requests in order of arrival and breaks every tie."""

    rid: str
    arrival: int
    prompt: bytes
    """int32 token ids, four bytes each."""
    prompt_len: int
    params: SamplingParams
    max_tokens: int
    stop_ids: frozenset[int]
    """Token ids that end the answer: the model's (unless ignore_eos) and the request's."""
    extra_key: ExtraKey = SHARED
    priority: int = 0
    request_id: str = ""
    """What the client calls it."""
    explain_cache: bool = False
    """Whether its last Output explains what it reused."""

    output_ids: list[int] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)
    """As far as they are known; preemption leaves them."""
    computed_len: int = 0
    """Tokens whose KV is in the pool: reused or computed."""
    cached_len: int | None = None
    """Tokens reused at first admission; None before it."""
    row: int = -1
    """Row of the slot table while running."""
    lease: Lease | None = None
    """Its claim on the cache while running."""
    matcher: Matcher | None = None
    """Where the output stands in the request's grammar. Its own, never the tree's; a preemption leaves it as it is."""
    starved: bool = False
    """Whether it was passed over as often as may be: nothing is admitted before it any more."""
    finish_reason: FinishReason | None = None
    explanation: Explanation | None = None
    """What an observer found of its first admission."""
    admitted_s: float | None = None
    """When that was, by the monotonic clock of an observer."""

    @property
    def seq_len(self) -> int:
        """Tokens known: prompt and output."""
        return self.prompt_len + len(self.output_ids)

    @property
    def extend_len(self) -> int:
        """Tokens known whose KV is still to compute."""
        return self.prompt_len + len(self.output_ids) - self.computed_len

    @property
    def unscored(self) -> range:
        """Positions of the prompt whose logits are still to be reported. Each scores the token after it."""
        if self.params.prompt_logprobs is None:
            return range(0)
        return range(self.params.logprob_start_len + len(self.prompt_logprobs), self.prompt_len - 1)

    @property
    def reusable_len(self) -> int:
        """Tokens known whose KV need not be computed: the cache has no logits, so nothing from the first that are needed."""
        unscored = self.unscored
        return unscored.start if unscored else self.seq_len - 1

    def tokens(self, end: int | None = None) -> bytes:
        """The first `end` tokens (all by default) of prompt and output, as int32 bytes."""
        if end is not None and end <= self.prompt_len:
            return self.prompt if end == self.prompt_len else self.prompt[: end * TOKEN_BYTES]
        taken = self.output_ids if end is None else self.output_ids[: end - self.prompt_len]
        return self.prompt + token_bytes(taken) if taken else self.prompt

    def token_ids(self, start: int, end: int) -> np.ndarray:
        """Tokens [start, end) as int32."""
        if end <= self.prompt_len:
            return as_ids(self.prompt)[start:end]
        if start >= self.prompt_len:
            return np.array(self.output_ids[start - self.prompt_len : end - self.prompt_len], dtype=np.int32)
        head = as_ids(self.prompt)[start:]
        return np.concatenate([head, np.array(self.output_ids[: end - self.prompt_len], dtype=np.int32)])
