"""Log-probabilities for the requests that asked for them: the model's own, before penalties, biases, bans and temperature."""

from collections.abc import Sequence
from typing import cast

import torch
from torch.nn.functional import pad

from radixserve.ipc import TokenLogprob
from radixserve.sampling.select import pieces, top

GROUP = 64
"""Terms of a sum that torch adds up as it likes."""


class RawLogprobs:
    """The log-softmax, over float32, of the rows that asked, taken before the sampler changes their logits."""

    def __init__(self, logits: torch.Tensor, counts: Sequence[int | None]) -> None:
        """`logits`: [R, V], left as they are. `counts` [R]: how many of the likeliest to report, None for a row that didn't ask."""
        self._counts = {row: count for row, count in enumerate(counts) if count is not None}
        if not self._counts:
            return
        rows = torch.tensor(list(self._counts), device=logits.device)
        self._raw = logits[rows].float()
        self._normalizer = self._raw.new_empty(len(rows), 1)
        for some in pieces(self._raw):
            peak = self._raw[some].amax(-1, keepdim=True)
            self._normalizer[some] = peak + _log_sum_exp(self._raw[some] - peak)
        values, ids = top(self._raw, min(max(1, *self._counts.values()), logits.shape[1]))
        self._top_ids: list[list[int]] = ids.tolist()
        self._top_values: list[list[float]] = (torch.from_numpy(values).float() - self._normalizer.cpu()).tolist()

    def of(self, token_ids: Sequence[int]) -> list[TokenLogprob | None]:
        """One entry a row [R]: None where none was asked for, or no token was chosen (a negative id)."""
        found: list[TokenLogprob | None] = [None] * len(token_ids)
        if not self._counts:
            return found
        chosen = self._raw.gather(1, torch.tensor([[max(token_ids[row], 0)] for row in self._counts], device=self._raw.device))
        values = (chosen - self._normalizer)[:, 0].tolist()
        ranks = [rank for some in pieces(self._raw) for rank in ((self._raw[some] > chosen[some]).sum(-1) + 1).tolist()]
        for index, (row, count) in enumerate(self._counts.items()):
            if token_ids[row] >= 0:
                top = zip(self._top_ids[index][:count], self._top_values[index][:count], strict=True)
                found[row] = TokenLogprob(token_ids[row], values[index], tuple(top), ranks[index])
        return found


def score_tokens(logits: torch.Tensor, token_ids: Sequence[int], count: int) -> list[TokenLogprob]:
    """What a model gave to tokens that are known. `logits`: [R, V], the row for each; `count` of the likeliest go with it."""
    return cast(list[TokenLogprob], RawLogprobs(logits, [count] * len(token_ids)).of(token_ids))


def _log_sum_exp(values: torch.Tensor) -> torch.Tensor:
    """Of each row, `values` float32 [R, V], summed in float64; [R, 1]; changes `values`. No bit of a row depends on the others.

    torch splits a long sum among threads when it is the only one: so it gets short ones, and their sums are added one by one.
    """
    weights = pad(values.exp_(), (0, -values.shape[1] % GROUP))
    sums = weights.view(len(values), -1, GROUP).sum(-1, dtype=torch.float64)
    return sums.cumsum(-1)[:, -1:].log().float()
