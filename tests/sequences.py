"""Runs a decoder step by step without an engine: several sequences over one pool, whose slots are scattered."""

import itertools

import torch

from radixserve.batch import AdapterRun, ForwardBatch
from radixserve.cache.kv_pool import KVPool
from radixserve.models.decoder import AnyDecoder

NUM_SLOTS = 512


class Sequences:
    """Each sequence is a row of the slot table, empty at first, and may grow to NUM_SLOTS / num_sequences tokens."""

    def __init__(self, decoder: AnyDecoder, num_sequences: int) -> None:
        config = decoder.config
        self._decoder = decoder
        pool = KVPool(config.num_layers, NUM_SLOTS, 1, config.num_kv_heads, config.head_dim, decoder.dtype)
        self._begin = decoder.steps(pool)
        slots = torch.randperm(NUM_SLOTS, generator=torch.Generator().manual_seed(1)).int() + 1
        self._table = slots.reshape(num_sequences, -1)
        self._lengths = [0] * num_sequences

    def extend(
        self, runs: dict[int, torch.Tensor], logits_rows: torch.Tensor | None = None, loads: dict[int, int] | None = None
    ) -> torch.Tensor:
        """Appends token ids to the sequences named by `runs`, in one step. `loads`: numbers of the adapters that compute them.

        Returns the logits of the tokens `logits_rows`, which count through all runs in order; of all tokens by default.
        """
        starts = {row: self._lengths[row] for row in runs}
        for row, ids in runs.items():
            self._lengths[row] += len(ids)
        ends = list(itertools.accumulate(map(len, runs.values())))
        positions = torch.cat([torch.arange(starts[row], self._lengths[row]) for row in runs])
        batch = ForwardBatch(
            reqs=[],
            extend_lens=[len(ids) for ids in runs.values()],
            seq_lens=[self._lengths[row] for row in runs],
            rows=list(runs),
            input_ids=torch.cat(list(runs.values())),
            positions=positions,
            out_slots=torch.cat([self._table[row, starts[row] : self._lengths[row]] for row in runs]).long(),
            logits_rows=torch.arange(len(positions)) if logits_rows is None else logits_rows,
            sampled=[],
            slot_table=self._table,
            adapters=[
                AdapterRun(loads[row], end - len(ids), end)
                for (row, ids), end in zip(runs.items(), ends, strict=True)
                if loads is not None and row in loads
            ],
        )
        return self._decoder.logits(self._decoder.forward(batch, self._begin(batch)), batch.logits_rows)
