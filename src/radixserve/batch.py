"""The input of one step of the model: ragged, every request a run of tokens, prefill and decode alike.

The scheduler plans it on the host; `to` brings it to the model's device. T is the number of tokens in the batch, B of requests,
R of rows whose logits are needed (one a request that will be given a token). Logits that score prompts are named apart, since a
long prompt has too many of them to be held at once.
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch

from radixserve.req import Req


class ScoredRun(NamedTuple):
    """Tokens [start, start + length) of a prompt, rows [row, row + length) of a step. Their logits score the tokens after them."""

    req: Req
    start: int
    row: int
    length: int


class AdapterRun(NamedTuple):
    """Rows [begin, end) of a step, which one adapter computes. `load`: its number, as in `ExtraKey`."""

    load: int
    begin: int
    end: int


@dataclass(slots=True)
class ForwardBatch:
    """One step. Request b computes tokens [seq_lens[b] - extend_lens[b], seq_lens[b]) of its sequence."""

    reqs: list[Req]
    """[B], in the order of the runs in `input_ids`."""
    extend_lens: list[int]
    """[B] tokens computed in this step; 1 for a decode."""
    seq_lens: list[int]
    """[B] tokens with KV after this step."""
    rows: list[int]
    """[B] rows of `slot_table`."""
    input_ids: torch.Tensor
    """int64 [T]"""
    positions: torch.Tensor
    """int64 [T]"""
    out_slots: torch.Tensor
    """int64 [T]: where each token's K and V go."""
    logits_rows: torch.Tensor
    """int64 [R]: indices into T."""
    sampled: list[Req]
    """[R]: whose logits those are."""
    slot_table: torch.Tensor
    """int32 [max_running, max_context_len], on the device: slots of each row's tokens."""
    scored: list[ScoredRun] = field(default_factory=list)
    """Whose prompts are scored, for `prompt_logprobs`."""
    copies: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    """(source slots, target slots), int64 each: KV to copy before anything is computed (copy on write)."""
    adapters: list[AdapterRun] = field(default_factory=list)
    """In order of rows, one an adapter; all other rows are the base's."""

    def to(self, device: torch.device) -> "ForwardBatch":
        """The same batch with its tensors on `device`; itself where they already are."""
        if self.input_ids.device == device:
            return self
        return replace(
            self,
            input_ids=self.input_ids.to(device, non_blocking=True),
            positions=self.positions.to(device, non_blocking=True),
            out_slots=self.out_slots.to(device, non_blocking=True),
            logits_rows=self.logits_rows.to(device, non_blocking=True),
            copies=[(source.to(device), target.to(device)) for source, target in self.copies],
        )
