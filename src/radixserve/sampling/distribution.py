"""Choosing a token from logits by one uniform number: inverse transform sampling, whole or truncated.

Every number here is a function of one row alone. Sums run over a row in order (a cumulative sum in float64), because the terms of
a parallel sum are grouped by the shape of the batch and the number of threads; with equal logits a row then gets equal tokens in
every batch, to the last bit on a CPU.
"""

from dataclasses import dataclass

import numpy as np
import torch

from radixserve.sampling.select import pieces, top

_SIZES = (64, 1024)
"""How many of the likeliest tokens are looked at, before those that fill a nucleus are counted out."""


@dataclass(frozen=True)
class Draws:
    """How G rows are sampled; arrays [G]. `top_k` 0, `top_p` 1 and `min_p` 0 are off. `uniform` lies in [0, 1)."""

    temperature: np.ndarray
    top_k: np.ndarray
    top_p: np.ndarray
    min_p: np.ndarray
    uniform: np.ndarray

    def take(self, rows: np.ndarray | slice) -> "Draws":
        """The same for some of the rows."""
        return Draws(self.temperature[rows], self.top_k[rows], self.top_p[rows], self.min_p[rows], self.uniform[rows])


def cumulative_weights(logits: torch.Tensor, peak: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """Running sums of exp((logit - peak) / temperature) in order of ids: float64 [G, V]. `peak`, `temperature`: [G, 1]."""
    return (logits - peak).div_(temperature).exp_().cumsum(-1, dtype=torch.float64)


def draw_whole(logits: torch.Tensor, peak: torch.Tensor, draws: Draws) -> np.ndarray:
    """Draws from the whole distribution, in order of ids; returns ids, int64 [G]. `logits`: [G, V], `peak`: their maxima [G, 1]."""
    ids = np.empty(len(logits), dtype=np.int64)
    for rows in pieces(logits):
        ids[rows] = _draw_whole(logits[rows], peak[rows], draws.take(rows))
    return ids


def _draw_whole(logits: torch.Tensor, peak: torch.Tensor, draws: Draws) -> np.ndarray:
    sums = cumulative_weights(logits, peak, _column(draws.temperature, logits))
    total = sums[:, -1:].contiguous()
    target = torch.from_numpy(draws.uniform[:, None]).to(sums.device) * total
    # The target can round up to the total: the second search keeps off the ids without weight after the last one with it.
    chosen = torch.minimum(torch.searchsorted(sums, target, right=True), torch.searchsorted(sums, total))
    ids: np.ndarray = chosen[:, 0].cpu().numpy()
    return ids


def draw_truncated(logits: torch.Tensor, peak: torch.Tensor, draws: Draws) -> np.ndarray:
    """Draws from what top_k, top_p and min_p leave of each row, likeliest first; returns ids, int64 [G].

    `logits`: [G, V], `peak`: their maxima [G, 1]. Looks at the 64 likeliest tokens, then at 1024, then at as many as the row needs.
    """
    vocab = logits.shape[1]
    limit = np.where((draws.top_k > 0) & (draws.top_k < vocab), draws.top_k, vocab)
    mass = _whole_mass(logits, peak, draws, (draws.top_p < 1.0) & (limit == vocab))
    ids = np.empty(len(limit), dtype=np.int64)
    undecided = np.ones(len(limit), dtype=bool)
    for size in (size for size in _SIZES if size < vocab):
        # A top_k between the size and the vocabulary has to wait: what it leaves is not all in sight.
        rows = np.flatnonzero(undecided & ((limit <= size) | (limit == vocab)))
        if len(rows):
            decided, chosen = _draw_from_top(_select(logits, rows), size, draws.take(rows), limit[rows], mass[rows])
            ids[rows[decided]] = chosen[decided]
            undecided[rows[decided]] = False
    for row in np.flatnonzero(undecided):
        one = slice(row, row + 1)
        ids[row] = _draw_from_many(logits[row], draws.take(one), limit[one])
    return ids


def _whole_mass(logits: torch.Tensor, peak: torch.Tensor, draws: Draws, needed: np.ndarray) -> np.ndarray:
    """Sum of a row's weights over the vocabulary, float64 [G], for the rows where it is needed; NaN elsewhere."""
    mass = np.full(len(needed), np.nan)
    rows = np.flatnonzero(needed)
    if len(rows):
        theirs, peaks, temperature = _select(logits, rows), _select(peak, rows), _column(draws.temperature[rows], logits)
        for some in pieces(theirs):
            sums = cumulative_weights(theirs[some], peaks[some], temperature[some])
            mass[rows[some]] = sums[:, -1].cpu().numpy()
    return mass


def _draw_from_top(
    logits: torch.Tensor, size: int, draws: Draws, limit: np.ndarray, mass: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Draws from the `size` likeliest tokens. Returns which rows that decides, bool [G], and their ids, int64 [G].

    A row is decided when the last token it keeps is likelier than the last one in sight: whatever is out of sight, ties included,
    then comes after it.
    """
    values, ids = top(logits, size)
    last, rank = _draw_ranks(values, draws, limit, mass)
    row = np.arange(len(values))
    return values[row, last] > values[:, -1], ids[row, rank]


def _draw_from_many(logits: torch.Tensor, draws: Draws, limit: np.ndarray) -> int:
    """Draws for one row, `logits` [V], that keeps many tokens: from those that are likely enough, or from all."""
    row = logits.cpu().numpy()
    if limit[0] == len(row):
        weights = row.astype(np.float64)
        weights -= weights.max()
        weights /= draws.temperature[0]
        np.exp(weights, out=weights)
        mass = weights.sum()
        ids = np.flatnonzero(weights >= _least_needed(weights, draws.top_p[0] * mass, draws.min_p[0]))
        last, index = _draw_sorted(row[ids], draws, limit, mass[None])
        if last + 1 < len(ids):  # one of them is not kept, so whatever comes after it is not either
            return int(ids[index])
    return _draw_sorted(row, draws, limit, np.full(1, np.nan))[1]


def _least_needed(weights: np.ndarray, mass: float, least: float) -> float:
    """A weight below which no token is kept: the heavier ones weigh `mass` together, or it is below `least`.

    `weights`: float64 [V]. Positive floats are ordered as their bits are, of which the upper ones make bins of an eighth of an
    octave. One bin more is taken than is needed, so that no rounding matters.
    """
    sums = np.bincount(weights.view(np.int64) >> 49, weights)[::-1].cumsum()
    lowest = len(sums) - 1 - int(np.searchsorted(sums, mass))
    needed = max(lowest, int(np.float64(least).view(np.int64)) >> 49) - 1
    return float(np.int64(max(needed, 0) << 49).view(np.float64))


def _draw_sorted(values: np.ndarray, draws: Draws, limit: np.ndarray, mass: np.ndarray) -> tuple[int, int]:
    """Draws for one row among logits in order of ids, float [n]. Returns the rank of the last one kept, and the index of the drawn.

    NumPy sorts values alone 10 times faster than with their ids.
    """
    falling = np.sort(values)[::-1]
    last, ranks = _draw_ranks(falling[None].astype(np.float64), draws, limit, mass)
    rank = int(ranks[0])
    equals_before = rank - int(np.searchsorted(-falling, -falling[rank]))
    return int(last[0]), int(np.flatnonzero(values == falling[rank])[equals_before])


def _draw_ranks(values: np.ndarray, draws: Draws, limit: np.ndarray, mass: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Truncates and draws among the first tokens of each row: `values` are their logits, falling, float64 [G, size].

    Returns the rank of the last token kept and that of the token drawn, int64 [G] each. `mass` counts where `limit`, the
    effective top_k, goes beyond the tokens in sight.
    """
    size = values.shape[1]
    row = np.arange(len(values))
    weights = np.exp((values - values[:, :1]) / draws.temperature[:, None])
    sums = weights.cumsum(axis=1)
    top_k_mass = np.where(limit <= size, sums[row, np.minimum(limit, size) - 1], mass)
    # top_p keeps a token when those before it do not reach the mass. The weight of the first is 1.
    in_top_p = (sums - weights < (draws.top_p * top_k_mass)[:, None]) | (draws.top_p >= 1.0)[:, None]
    kept = np.minimum.reduce([limit, in_top_p.sum(axis=1), (weights >= draws.min_p[:, None]).sum(axis=1)])
    last = np.maximum(kept, 1) - 1
    total = sums[row, last][:, None]
    # The product can round up to the total: the second count keeps off tokens without weight after the last one with it.
    rank = np.minimum((sums <= draws.uniform[:, None] * total).sum(axis=1), (sums < total).sum(axis=1))
    return last, rank


def _select(tensor: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
    """Those rows; the tensor itself where they are all of them."""
    return tensor if len(rows) == len(tensor) else tensor[torch.from_numpy(rows).to(tensor.device)]


def _column(values: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(values[:, None]).to(like.device, like.dtype)
