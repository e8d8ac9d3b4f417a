"""Which requests of a step are attended by one call, over which slots, under which mask: the same for all layers.

A step is cut into groups. A request that extends by several tokens is a group of its own: such a call computes enough to keep
the cores busy; where its mask would be large it is several calls, of a block of tokens each. Decodes of similar length share a
call, their keys padded to one length, because many small calls cost more than they compute. Padding repeats the request's own
last slot, under a mask: nobody reads a slot of another.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from radixserve.batch import ForwardBatch

GROUP_KEYS = 8192
"""Most keys, padding included, in a group of several requests: their K and V should stay in the CPU's caches."""
MAX_MASK = 1 << 23
"""Most numbers in a mask, or as many as"""
MIN_ROWS = 768
"""so many queries need: with fewer, SDPA takes smaller tiles on a CPU."""
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
    """[B, 1, block * queries, num_keys]: 0 where one of each request's last `block` tokens sees a key, -inf elsewhere; None where
    all see all. A token has `queries` rows, one for each query head that reads the same KV head."""
    block: int
    """Tokens of each request that are attended at once: all that it extends by, or fewer."""

    def blocks(self) -> Iterator["Group"]:
        """The group as one for each block, with the keys from the first to those of the block's own tokens."""
        num_tokens = len(self.tokens)
        if self.mask is None or len(self.mask) > 1 or self.block == num_tokens:
            yield self
            return
        queries = self.mask.shape[2] // self.block
        for start in range(0, num_tokens, self.block):
            end = min(start + self.block, num_tokens)
            num_keys = self.num_keys - (num_tokens - end)
            # Whether a token sees a key depends on how far back it is: the mask of all blocks is the end of that of the last.
            mask = self.mask[:, :, (start - end) * queries :, -num_keys:]
            yield Group(self.tokens[start:end], self.slots[:num_keys], num_keys, mask, end - start)


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
        block = min(extend_len, max(MAX_MASK // longest, MIN_ROWS) // queries)
        mask = None
        if extend_len > 1 or min(num_keys) < longest:
            mask = causal_mask(seq_lens - block + new[:block], key_positions, window, queries, dtype)
        return Group((starts + new).flatten(), slots.flatten().long(), longest, mask, block)


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


def causal_mask(
    token_positions: torch.Tensor, key_positions: torch.Tensor, window: int | None, queries: int, dtype: torch.dtype
) -> torch.Tensor:
    """[B, 1, tokens * queries, keys] of `dtype`: 0 where the key is not after the token and less than `window` before, else -inf.

    `token_positions` [B, tokens], `key_positions` [B, keys]: int64. `queries`: rows of each token.
    """
    tokens, keys = token_positions[:, :, None, None], key_positions[:, None, None, :]
    hidden = keys > tokens
    if window is not None:
        hidden |= keys <= tokens - window
    mask = torch.zeros((*tokens.shape[:2], queries, keys.shape[3]), dtype=dtype, device=hidden.device)
    return mask.masked_fill_(hidden, -torch.inf).flatten(1, 2)[:, None]
