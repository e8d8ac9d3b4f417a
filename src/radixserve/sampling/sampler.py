"""Tokens from logits, each request by its own parameters.

Order of operations: the repetition penalty, frequency and presence penalties, logit_bias, min_tokens; the grammar; temperature;
top_k; top_p, on what top_k leaves; min_p. A token is a function of its row of logits, its request's parameters, seed and grammar,
and its position: batch mates don't matter. `docs/design/sampling.md` has the reasons.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from radixserve.ipc import TokenLogprob
from radixserve.req import Req
from radixserve.sampling.distribution import Draws, draw_truncated, draw_whole
from radixserve.sampling.grammar_masks import GrammarMasks
from radixserve.sampling.logprobs import RawLogprobs
from radixserve.sampling.penalties import adjust_logits
from radixserve.sampling.select import NO_TOKEN, likeliest
from radixserve.sampling.uniform import uniform
from radixserve.sampling_params import SamplingParams

GREEDY_BELOW = 1e-5
"""Temperatures below this are greedy: dividing by them only overflows."""


@dataclass(frozen=True)
class SampleResult:
    """`token_ids` [R]: NO_TOKEN where a request can't go on and has to end with an error. `logprobs` [R]: None if not asked for."""

    token_ids: list[int]
    logprobs: list[TokenLogprob | None]


class Sampler:
    """Has no state."""

    @torch.inference_mode()
    def sample(self, logits: torch.Tensor, reqs: Sequence[Req], masks: GrammarMasks | None = None) -> SampleResult:
        """Chooses the next token of each request. `logits`: float32 or float64 [R, V], on any device; changed in place.

        A row that can't be sampled never raises: it gets NO_TOKEN, and the other rows their tokens.
        """
        raw = RawLogprobs(logits, [req.params.logprobs for req in reqs])
        adjust_logits(logits, reqs)
        if masks is not None:
            masks.apply(logits)
        token_ids = _choose(logits, reqs)
        return SampleResult(token_ids, raw.of(token_ids))


def _choose(logits: torch.Tensor, reqs: Sequence[Req]) -> list[int]:
    token_ids = likeliest(logits)
    drawn = [row for row, req in enumerate(reqs) if req.params.temperature >= GREEDY_BELOW and token_ids[row] != NO_TOKEN]
    for draw, rows in (
        (draw_truncated, [row for row in drawn if _truncates(reqs[row].params)]),
        (draw_whole, [row for row in drawn if not _truncates(reqs[row].params)]),
    ):
        if rows:
            theirs = logits if len(rows) == len(reqs) else logits[torch.tensor(rows, device=logits.device)]
            best = torch.tensor([token_ids[row] for row in rows], device=logits.device)
            chosen = draw(theirs, theirs.gather(1, best[:, None]), _draws([reqs[row] for row in rows]))
            for row, token_id in zip(rows, chosen.tolist(), strict=True):
                token_ids[row] = token_id
    return token_ids


def _truncates(params: SamplingParams) -> bool:
    return params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0


def _draws(reqs: Sequence[Req]) -> Draws:
    params = [req.params for req in reqs]
    return Draws(
        temperature=np.array([one.temperature for one in params], dtype=np.float64),
        top_k=np.array([min(one.top_k, 2**31) for one in params], dtype=np.int64),
        top_p=np.array([one.top_p for one in params], dtype=np.float64),
        min_p=np.array([one.min_p for one in params], dtype=np.float64),
        uniform=uniform(
            [req.arrival if req.params.seed is None else req.params.seed for req in reqs], [len(req.output_ids) for req in reqs]
        ),
    )
