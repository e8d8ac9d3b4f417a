"""What a request changes in its logits before a token is chosen: penalties, then biases, then bans.

Only the ids that occur are touched, never the whole vocabulary.
"""

import torch

from radixserve.req import Req
from radixserve.sampling_params import SamplingParams


def adjust_logits(logits: torch.Tensor, index: int, req: Req) -> None:
    """Changes row `index` of `logits` [R, V], that of one request's next token, in place.

    The repetition penalty divides positive and multiplies negative logits of every token in prompt and output (Keskar et al.,
    "CTRL", 2019). Frequency and presence penalties are subtracted for tokens of the output, as OpenAI defines them. A bias is
    added as it is. Stop tokens are banned until there are `min_tokens` tokens.
    """
    params = req.params
    if not _changes_logits(params):
        return
    row = logits[index]
    if params.repetition_penalty != 1.0:
        _penalize_repetition(row, req, params.repetition_penalty)
    if req.output_ids and (params.frequency_penalty or params.presence_penalty):
        _penalize_output(row, req.output_ids, params)
    if params.logit_bias:
        row[_index(list(params.logit_bias), row)] += torch.tensor(list(params.logit_bias.values()), dtype=row.dtype).to(row.device)
    if len(req.output_ids) < params.min_tokens:
        # An id beyond the logits can't be chosen: there is nothing to ban.
        row[_index([stop_id for stop_id in req.stop_ids if stop_id < len(row)], row)] = -torch.inf


def _changes_logits(params: SamplingParams) -> bool:
    """Most requests change nothing, and to take a row costs more than to know that."""
    return bool(
        params.repetition_penalty != 1.0
        or params.frequency_penalty
        or params.presence_penalty
        or params.logit_bias
        or params.min_tokens
    )


def _penalize_repetition(row: torch.Tensor, req: Req, penalty: float) -> None:
    # An id that occurs twice is written twice, with the same value.
    ids = torch.tensor(req.token_ids(0, req.seq_len), dtype=torch.int64, device=row.device)
    values = row[ids]
    row[ids] = torch.where(values > 0, values / penalty, values * penalty)


def _penalize_output(row: torch.Tensor, output_ids: list[int], params: SamplingParams) -> None:
    ids = _index(output_ids, row)
    row.index_add_(0, ids, row.new_full((len(output_ids),), -params.frequency_penalty))
    row[ids] -= params.presence_penalty


def _index(ids: list[int], row: torch.Tensor) -> torch.Tensor:
    return torch.tensor(ids, dtype=torch.int64, device=row.device)
