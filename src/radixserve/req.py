"""The state of one request inside the engine.

A request's tokens are `prompt` followed by `output_ids`. KV exists for the first `computed_len` of them. Each step computes the
next `extend_len` tokens or a chunk of them; when all are computed, the model's logits give one more.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from radixserve.explanation import Explanation
from radixserve.messages import FinishReason, TokenLogprob
from radixserve.sampling_params import SamplingParams

if TYPE_CHECKING:
    from radixserve.cache.prefix_cache import Lease
    from radixserve.sampling.grammar import Matcher


class ExtraKey(NamedTuple):
    """What separates namespaces of the tree: two requests share KV only when all fields are equal."""

    adapter: str | None = None
    cache_salt: str | None = None
    adapter_load: int = 0
    """Number of the load that brought the adapter, from 1 on: a name may come again with other weights. 0: the base."""


SHARED = ExtraKey()
"""The namespace of requests that name neither adapter nor salt."""


def token_bytes(token_ids: "np.ndarray | list[int]") -> bytes:
    """Token ids as native-endian int32 bytes, four a token: the form in which the tree compares them."""
    return np.asarray(token_ids, dtype=np.int32).tobytes()


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
    lease: "Lease | None" = None
    """Its claim on the cache while running."""
    matcher: "Matcher | None" = None
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
            return self.prompt if end == self.prompt_len else self.prompt[: end * 4]
        taken = self.output_ids if end is None else self.output_ids[: end - self.prompt_len]
        return self.prompt + token_bytes(taken) if taken else self.prompt

    def token_ids(self, start: int, end: int) -> np.ndarray:
        """Tokens [start, end) as int32."""
        if end <= self.prompt_len:
            return np.frombuffer(self.prompt, dtype=np.int32, count=end - start, offset=start * 4)
        if start >= self.prompt_len:
            return np.array(self.output_ids[start - self.prompt_len : end - self.prompt_len], dtype=np.int32)
        head = np.frombuffer(self.prompt, dtype=np.int32, offset=start * 4)
        return np.concatenate([head, np.array(self.output_ids[: end - self.prompt_len], dtype=np.int32)])
