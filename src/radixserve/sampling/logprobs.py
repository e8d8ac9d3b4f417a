"""Log-probabilities for the requests that asked for them: the model's own, before penalties, biases, bans and temperature."""

from collections.abc import Sequence

import torch

from radixserve.messages import TokenLogprob
from radixserve.req import Req
from radixserve.sampling.distribution import cumulative_weights


class RawLogprobs:
    """The log-softmax, over float32, of the rows that asked, taken before the sampler changes their logits."""

    def __init__(self, logits: torch.Tensor, reqs: Sequence[Req]) -> None:
        """`logits`: [R, V], left as they are."""
        self._counts = {row: req.params.logprobs for row, req in enumerate(reqs) if req.params.logprobs is not None}
        if not self._counts:
            return
        rows = torch.tensor(list(self._counts), device=logits.device)
        self._raw = logits[rows].float()
        peak = self._raw.amax(-1, keepdim=True)
        total = cumulative_weights(self._raw, peak, torch.ones_like(peak))[:, -1:]
        self._normalizer = peak + total.log().float()
        top = self._raw.topk(min(max(self._counts.values()), logits.shape[1]))
        self._top_ids: list[list[int]] = top.indices.tolist()
        self._top_values: list[list[float]] = (top.values - self._normalizer).tolist()

    def of(self, token_ids: Sequence[int]) -> list[TokenLogprob | None]:
        """One entry a row [R]: None where none was asked for, or no token was chosen (a negative id)."""
        found: list[TokenLogprob | None] = [None] * len(token_ids)
        for index, (row, count) in enumerate(self._counts.items()):
            token_id = token_ids[row]
            if token_id >= 0:
                top = zip(self._top_ids[index][:count], self._top_values[index][:count], strict=True)
                found[row] = TokenLogprob(token_id, float(self._raw[index, token_id] - self._normalizer[index, 0]), tuple(top))
        return found
