"""What requests change in their logits before tokens are chosen: penalties, then biases, then bans.

Only the ids that occur are touched, never the whole vocabulary. Those of all requests are touched at once: to start an operation of
torch takes longer than to do it for one.
"""

from collections.abc import Sequence

import numpy as np
import torch

from radixserve.req import Req
from radixserve.sampling_params import SamplingParams

_Row = tuple[int, Req]


def adjust_logits(logits: torch.Tensor, reqs: Sequence[Req]) -> None:
    """Changes `logits` [R, V], row by row those of the next token of `reqs`, in place.

    The repetition penalty divides positive and multiplies negative logits of every token in prompt and output (Keskar et al.,
    "CTRL", 2019). Frequency and presence penalties are subtracted for tokens of the output, as OpenAI defines them. A bias is
    added as it is. Stop tokens are banned until there are `min_tokens` tokens.
    """
    changed = [(row, req) for row, req in enumerate(reqs) if _changes_logits(req.params)]
    if repeating := [(row, req) for row, req in changed if req.params.repetition_penalty != 1.0]:
        _penalize_repetition(logits, repeating)
    if penalized := [(row, req) for row, req in changed if req.output_ids and _penalizes_output(req.params)]:
        _penalize_output(logits, penalized)
    if biased := [(row, req) for row, req in changed if req.params.logit_bias]:
        _add_bias(logits, biased)
    if early := [(row, req) for row, req in changed if len(req.output_ids) < req.params.min_tokens]:
        _ban_stop_tokens(logits, early)


def _changes_logits(params: SamplingParams) -> bool:
    """Most requests change nothing."""
    return bool(params.repetition_penalty != 1.0 or _penalizes_output(params) or params.logit_bias or params.min_tokens)


def _penalizes_output(params: SamplingParams) -> bool:
    return bool(params.frequency_penalty or params.presence_penalty)


class _Entries:
    """The logits of some ids in each of some rows, as one list."""

    def __init__(self, logits: torch.Tensor, rows: list[_Row], ids: Sequence[Sequence[int] | np.ndarray]) -> None:
        """`ids`: of each row; one that occurs twice stands for one logit all the same."""
        self._logits = logits
        self._lengths = [len(some) for some in ids]
        row_of = np.repeat(np.array([row for row, _ in rows], dtype=np.int64), self._lengths)
        flat = np.concatenate([np.asarray(some, dtype=np.int64) for some in ids])
        self._index = torch.from_numpy(row_of).to(logits.device), torch.from_numpy(flat).to(logits.device)

    @property
    def values(self) -> torch.Tensor:
        return self._logits[self._index]

    def spread(self, of_rows: list[float]) -> torch.Tensor:
        """A number of each row, for all of its ids."""
        return self.tensor(np.repeat(of_rows, self._lengths))

    def tensor(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(values).to(self._logits.device, self._logits.dtype)

    def put(self, values: torch.Tensor | float) -> None:
        self._logits[self._index] = values

    def add_each(self, values: torch.Tensor) -> None:
        """Adds to an id as often as it occurs."""
        self._logits.index_put_(self._index, values, accumulate=True)


def _penalize_repetition(logits: torch.Tensor, rows: list[_Row]) -> None:
    entries = _Entries(logits, rows, [req.token_ids(0, req.seq_len) for _, req in rows])
    penalty, values = entries.spread([req.params.repetition_penalty for _, req in rows]), entries.values
    entries.put(torch.where(values > 0, values / penalty, values * penalty))


def _penalize_output(logits: torch.Tensor, rows: list[_Row]) -> None:
    entries = _Entries(logits, rows, [req.output_ids for _, req in rows])
    entries.add_each(entries.spread([-req.params.frequency_penalty for _, req in rows]))
    entries.put(entries.values - entries.spread([req.params.presence_penalty for _, req in rows]))


def _add_bias(logits: torch.Tensor, rows: list[_Row]) -> None:
    biases = [req.params.logit_bias for _, req in rows]
    entries = _Entries(logits, rows, [list(bias) for bias in biases])
    entries.put(entries.values + entries.tensor(np.array([value for bias in biases for value in bias.values()])))


def _ban_stop_tokens(logits: torch.Tensor, rows: list[_Row]) -> None:
    vocab = logits.shape[1]  # an id beyond it can't be chosen: there is nothing to ban
    _Entries(logits, rows, [[stop_id for stop_id in req.stop_ids if stop_id < vocab] for _, req in rows]).put(-torch.inf)
