"""The likeliest tokens of rows of logits: by the native kernels where they can read the logits, by torch elsewhere.

Both compare and never compute, so they choose the same.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from radixserve import kernels

if kernels.NOT_BUILT is None:
    from radixserve.kernels import _native

NO_TOKEN = -1
"""Stands for a token where a row has none to choose: its logits hold NaN or +inf, or every token is banned (-inf)."""

PIECE = 1 << 19
"""Logits that a core works on at a time: what is made of them stays in its cache."""


class Top(NamedTuple):
    """The likeliest tokens of each row, likeliest first, equal ones by their ids: `values` float64 and `ids` int64 [R, size]."""

    values: np.ndarray
    ids: np.ndarray


def pieces(logits: torch.Tensor) -> Iterator[slice]:
    """The rows of `logits` [R, V], a few for each of torch's threads at a time on a CPU; elsewhere all at once."""
    rows = max(PIECE * torch.get_num_threads() // logits.shape[1], 1) if logits.device.type == "cpu" else len(logits)
    for begin in range(0, len(logits), rows):
        yield slice(begin, begin + rows)


def likeliest(logits: torch.Tensor) -> list[int]:
    """The likeliest token of each row of `logits` [R, V], the lowest id of equal ones; NO_TOKEN where there is none to choose."""
    if _native_reads(logits):
        return _native.argmax(logits)
    best = logits.argmax(-1, keepdim=True)
    peak = logits.gather(1, best)  # NaN where the row holds one: argmax takes it for the largest
    usable = peak.isfinite()[:, 0].tolist()
    return [token_id if ok else NO_TOKEN for token_id, ok in zip(best[:, 0].tolist(), usable, strict=True)]


def top(logits: torch.Tensor, size: int) -> Top:
    """The `size` likeliest tokens of each row of `logits` [R, V], which holds no NaN; at most V."""
    if _native_reads(logits):
        values, ids = torch.empty(len(logits), size), torch.empty(len(logits), size, dtype=torch.int64)
        _native.top_k(logits, values, ids)
        return Top(values.double().numpy(), ids.numpy())
    found = logits.topk(size, sorted=False)
    return _in_order(found.values.double().cpu().numpy(), found.indices.cpu().numpy())


def _in_order(values: np.ndarray, ids: np.ndarray) -> Top:
    order = np.lexsort((ids, -values), axis=-1)
    return Top(np.take_along_axis(values, order, axis=1), np.take_along_axis(ids, order, axis=1))


def _native_reads(logits: torch.Tensor) -> bool:
    return kernels.NOT_BUILT is None and logits.device.type == "cpu" and logits.dtype == torch.float32 and logits.is_contiguous()
