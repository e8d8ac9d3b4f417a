"""Which requests of a step are attended by one call, over which slots, under which mask: the same for all layers.

A step is cut into groups. A request that extends by several tokens is a group of its own: such a call computes enough to keep
the cores busy. Decodes of similar length share a call, their keys padded to one length, because many small calls cost more
than they compute. Padding repeats the request's own last slot, under a mask: nobody reads a slot of another.
"""

from dataclasses import dataclass

import torch

from radixserve.batch import ForwardBatch

GROUP_KEYS = 8192
"""Most keys, padding included, in a group of several requests: their K and V should stay in the CPU's caches."""
MAX_PADDED = 1.25
"""Most keys with padding over keys without, in a group."""


@dataclass(frozen=True, slots=True)
class Group:
    """B requests of `extend_len` tokens and `num_keys` keys each."""

    tokens: torch.Tensor
    """int64 [B * extend_len]: which tokens of the batch."""
    slots: torch.Tensor
    """int64 [B * num_keys]: where their keys are."""
    num_keys: int
    mask: torch.Tensor | None
    """[B, 1, extend_len * queries, num_keys]: 0 where a query sees a key, -inf elsewhere; None where all see all. A token has
    `queries` rows, one for each query head that reads the same KV head."""


class StepPlan:
    """The groups of one step, made once for each window that the layers use."""

    def __init__(self, batch: ForwardBatch) -> None:
        self._batch = batch
        self._starts = [0]
        for extend_len in batch.extend_lens:
            self._starts.append(self._starts[-1] + extend_len)
        self._groups: dict[int | None, list[Group]] = {}

    def groups(self, window: int | None, queries: int, dtype: torch.dtype) -> list[Group]:
        """The groups of a layer. `queries`: query heads a KV head has; `dtype`: of the masks, the queries' own."""
        if window not in self._groups:
            num_keys = [
                seq_len if window is None else min(seq_len, extend_len + window - 1)
                for seq_len, extend_len in zip(self._batch.seq_lens, self._batch.extend_lens, strict=True)
            ]
            self._groups[window] = [
                self._group(members, [num_keys[b] for b in members], window, queries, dtype)
                for members in partition(self._batch.extend_lens, num_keys)
            ]
        return self._groups[window]

    def _group(self, members: list[int], num_keys: list[int], window: int | None, queries: int, dtype: torch.dtype) -> Group:
        batch, device, longest = self._batch, self._batch.slot_table.device, max(num_keys)
        extend_len = batch.extend_lens[members[0]]
        columns = [
            [self._starts[b], batch.rows[b], batch.seq_lens[b], batch.seq_lens[b] - own]
            for b, own in zip(members, num_keys, strict=True)
        ]
        starts, rows, seq_lens, first_keys = torch.tensor(columns, device=device).T[:, :, None]
        new = torch.arange(extend_len, device=device)
        key_positions = first_keys + torch.arange(longest, device=device)
        slots = batch.slot_table[rows, key_positions.clamp(max=seq_lens - 1)]
        mask = None
        if extend_len > 1 or min(num_keys) < longest:
            query_positions = seq_lens - extend_len + new
            mask = causal_mask(query_positions, key_positions, window, dtype).repeat_interleave(queries, dim=1)[:, None]
        return Group((starts + new).flatten(), slots.flatten().long(), longest, mask)


def partition(extend_lens: list[int], num_keys: list[int]) -> list[list[int]]:
    """Splits requests 0 .. B - 1 into groups: decodes of similar `num_keys` together, every other request alone."""
    groups: list[list[int]] = []
    total = 0
    for b in sorted(range(len(extend_lens)), key=lambda b: (extend_lens[b], num_keys[b])):
        total += num_keys[b]
        padded = num_keys[b] * (len(groups[-1]) + 1) if groups else 0
        if groups and extend_lens[b] == 1 and padded <= min(GROUP_KEYS, MAX_PADDED * total):
            groups[-1].append(b)
        else:
            groups.append([b])
            total = num_keys[b]
    return groups


def causal_mask(query_positions: torch.Tensor, key_positions: torch.Tensor, window: int | None, dtype: torch.dtype) -> torch.Tensor:
    """[B, queries, keys] of `dtype`: 0 where the key is not after the query and less than `window` before it, -inf elsewhere.

    `query_positions` [B, queries], `key_positions` [B, keys]: int64.
    """
    queries, keys = query_positions[:, :, None], key_positions[:, None, :]
    seen = keys <= queries
    if window is not None:
        seen &= keys > queries - window
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, -torch.inf)
