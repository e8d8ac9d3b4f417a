"""Lays out the steps that the scheduler plans, as batches for the model.

While the same requests decode, step after step, their batch is brought up to date in place: making tensors anew costs more than
what they hold. So a batch is good until the next one is laid out.
"""

import torch

from radixserve.batch import AdapterRun, ForwardBatch, ScoredRun
from radixserve.req import Req

Planned = list[tuple[Req, int]]
"""Requests and how many tokens each computes."""


class Layout:
    """`slot_table`: int32 [max_running, max_context_len], of all requests."""

    def __init__(self, slot_table: torch.Tensor) -> None:
        self._slot_table = slot_table
        self._decodes: ForwardBatch | None = None
        """The last batch, if it holds single decodes alone."""

    def lay_out(self, planned: Planned) -> ForwardBatch:
        """The batch of a step; see ForwardBatch. The one before is no longer valid. Rows of one adapter come together."""
        if any(req.extra_key.adapter_load for req, _ in planned):
            planned = sorted(planned, key=lambda run: run[0].extra_key.adapter_load)
        if self._decodes is not None and _repeats(planned, self._decodes):
            _advance(self._decodes)
            return self._decodes
        batch = _make(planned, self._slot_table)
        self._decodes = batch if len(batch.input_ids) == len(batch.sampled) and not batch.copies and not batch.scored else None
        return batch


def _repeats(planned: Planned, decodes: ForwardBatch) -> bool:
    """Whether the same requests as before decode, each a single token again."""
    return len(planned) == len(decodes.reqs) and all(
        req is before and extend_len == 1 and _decodes(req) for (req, extend_len), before in zip(planned, decodes.reqs, strict=True)
    )


def _decodes(req: Req) -> bool:
    """Whether it computes its last token and nothing else: one that was preempted meanwhile may have a page to copy before."""
    assert req.lease is not None
    return req.extend_len == 1 and req.lease.copy is None


def _advance(decodes: ForwardBatch) -> None:
    """Turns the batch of the last step into that of this one."""
    positions = [req.computed_len for req in decodes.reqs]
    decodes.input_ids.numpy()[:] = [req.output_ids[-1] for req in decodes.reqs]
    decodes.positions.numpy()[:] = positions
    decodes.out_slots.numpy()[:] = [_slot(req, at) for req, at in zip(decodes.reqs, positions, strict=True)]
    decodes.seq_lens = [at + 1 for at in positions]
    decodes.rows = [req.row for req in decodes.reqs]


def _make(planned: Planned, slot_table: torch.Tensor) -> ForwardBatch:
    num_tokens = sum(extend_len for _, extend_len in planned)
    input_ids, positions, out_slots = (torch.empty(num_tokens, dtype=torch.int64) for _ in range(3))
    ids, places, slots = input_ids.numpy(), positions.numpy(), out_slots.numpy()
    logits_rows, sampled, scored, copies = [], [], [], []
    adapters: list[AdapterRun] = []
    at = 0
    for req, extend_len in planned:
        assert req.lease is not None
        start, end = req.computed_len, req.computed_len + extend_len
        ids[at : at + extend_len] = req.token_ids(start, end)
        places[at : at + extend_len] = range(start, end)
        slots[at : at + extend_len] = req.lease.slots[start:end]
        if req.params.prompt_logprobs is not None:
            scored += _scored_run(req, start, end, at)
        if req.extra_key.adapter_load:
            _put_run(adapters, req.extra_key.adapter_load, at, at + extend_len)
        at += extend_len
        if end == req.seq_len:
            logits_rows.append(at - 1)
            sampled.append(req)
        if req.lease.copy is not None:
            source, target = req.lease.copy
            copies.append((torch.from_numpy(source).long(), torch.from_numpy(target).long()))
    return ForwardBatch(
        reqs=[req for req, _ in planned],
        extend_lens=[extend_len for _, extend_len in planned],
        seq_lens=[req.computed_len + extend_len for req, extend_len in planned],
        rows=[req.row for req, _ in planned],
        input_ids=input_ids,
        positions=positions,
        out_slots=out_slots,
        logits_rows=torch.tensor(logits_rows, dtype=torch.int64),
        sampled=sampled,
        slot_table=slot_table,
        scored=scored,
        copies=copies,
        adapters=adapters,
    )


def _put_run(runs: list[AdapterRun], load: int, begin: int, end: int) -> None:
    """Adds rows to the run of the adapter that the last ones were for, or begins one."""
    if runs and runs[-1].load == load:
        begin = runs.pop().begin
    runs.append(AdapterRun(load, begin, end))


def _scored_run(req: Req, start: int, end: int, row: int) -> list[ScoredRun]:
    """Of the tokens [start, end) of a request, from `row` of a step on, those whose logits are to be reported: one run or none."""
    first, stop = max(start, req.unscored.start), min(end, req.unscored.stop)
    return [ScoredRun(req, first, row + first - start, stop - first)] if first < stop else []


def _slot(req: Req, position: int) -> int:
    assert req.lease is not None
    return req.lease.buffer.item(position)
