"""What one engine can serve, and the check of a request against it.

The same check runs in the HTTP process, so that a bad request is refused at once, and in the engine, which trusts nobody.
"""

import msgspec
import numpy as np

from radixserve.errors import InvalidRequestError, ParamError
from radixserve.sampling_params import SamplingParams


class Limits(msgspec.Struct, frozen=True):
    """Effective limits of a started engine, in tokens."""

    vocab_size: int
    max_context_len: int
    num_slots: int
    page_size: int

    @property
    def pool_len(self) -> int:
        """Tokens that the pool holds, in whole pages."""
        return self.num_slots // self.page_size * self.page_size

    def max_output(self, prompt_len: int) -> int:
        """Most tokens a prompt of this length can be answered with. The last token's KV is never computed: it needs no slot."""
        return min(self.max_context_len - prompt_len, self.pool_len - prompt_len + 1)

    def check(self, prompt_ids: np.ndarray, params: SamplingParams) -> int:
        """Returns the effective max_tokens of a request. `prompt_ids`: int32 [prompt_len].

        Raises InvalidRequestError for parameters out of range, and as `check_prompt`.
        """
        params.validate(self.vocab_size)
        return self.check_prompt(prompt_ids, params)

    def check_prompt(self, prompt_ids: np.ndarray, params: SamplingParams) -> int:
        """Like `check`, for parameters that were validated: several prompts share them.

        Raises InvalidRequestError when the prompt is empty, holds an unknown id, or can't fit with its answer.
        """
        prompt_len = len(prompt_ids)
        if prompt_len == 0:
            raise InvalidRequestError("the prompt has no tokens: send at least one", param="prompt")
        low, high = int(prompt_ids.min()), int(prompt_ids.max())
        if low < 0 or high >= self.vocab_size:
            bad = low if low < 0 else high
            raise InvalidRequestError(
                f"the prompt holds token id {bad}: ids must be between 0 and {self.vocab_size - 1}", param="prompt"
            )
        if params.prompt_logprobs is not None and params.logprob_start_len >= prompt_len:
            problem = f"is {params.logprob_start_len}: must be below the prompt's {prompt_len} tokens"
            raise ParamError("logprob_start_len", problem)
        room = self.max_output(prompt_len)
        asked = params.max_tokens if params.max_tokens is not None else max(params.min_tokens, 1)
        if asked > room or prompt_len > self.pool_len:  # an answer of no tokens needs slots for its prompt all the same
            self._refuse(prompt_len, asked)
        return asked if params.max_tokens is not None else room

    def _refuse(self, prompt_len: int, asked: int) -> None:
        lead = f"the prompt has {prompt_len} tokens and "
        if prompt_len + asked > self.max_context_len:
            # Clients know a full context by these first words.
            lead = f"this model's maximum context length is {self.max_context_len} tokens: {lead}"
            problem = f"is {asked}, {prompt_len + asked} in all; shorten the prompt or ask for fewer tokens"
            by_prompt = prompt_len >= self.max_context_len
        else:
            needed = f"needs {prompt_len + max(asked, 1) - 1} slots: the pool holds {self.num_slots}"
            problem = f"is {asked}, which {needed}; shorten the request or raise --num-slots"
            by_prompt = prompt_len > self.num_slots
        error = ParamError("max_tokens", problem, lead=lead, code="context_length_exceeded")
        raise InvalidRequestError(error.message, param="prompt", code=error.code) if by_prompt else error
