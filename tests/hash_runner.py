"""A stand-in for a model whose KV is checkable: what a slot holds is a hash of the whole prefix that ends there.

Every slot that a step would read is compared with the hash of the request's own tokens. A slot that was given to two owners,
published before it was computed, evicted while in use or wired into the wrong row is found at once, and the answer it would have
changed is known: `solo` computes what a request alone, without any cache, is answered.
"""

from typing import Any

import numpy as np

from radixserve.batch import ForwardBatch, ScoredRun
from radixserve.config import EngineConfig
from radixserve.engine.adapter_reader import AdapterWeights
from radixserve.engine.assemble import assemble
from radixserve.engine.counting_runner import CountedStep
from radixserve.engine.engine import Engine
from radixserve.engine.grammars import Grammars
from radixserve.engine.weights import ModelWeights
from radixserve.ipc import EngineInfo, TokenLogprob
from radixserve.limits import Limits
from radixserve.observe.observer import Observer
from radixserve.req import Req
from radixserve.sampling.select import NO_TOKEN

VOCAB = 50


def prefix_hashes(token_ids: list[int]) -> list[int]:
    """Hash of each prefix, the shortest first."""
    hashes, last = [], 17
    for token_id in token_ids:
        last = (last * 1_000_003 + token_id * 7919 + 1) % (2**61 - 1)
        hashes.append(last)
    return hashes


def solo(prompt: list[int], max_tokens: int) -> list[int]:
    """The answer of a request that runs alone."""
    tokens = list(prompt)
    for _ in range(max_tokens):
        tokens.append(prefix_hashes(tokens)[-1] % VOCAB)
    return tokens[len(prompt) :]


class HashRunner:
    """Computes hashes in place of KV, and tokens from hashes. `computed` counts tokens."""

    def __init__(self, num_slots: int, page_size: int) -> None:
        self.held = np.zeros(num_slots + page_size, dtype=np.int64)
        self.computed = 0

    def launch(self, batch: ForwardBatch) -> CountedStep:
        for source, target in batch.copies:
            self.held[target.numpy()] = self.held[source.numpy()]
        table, out_slots, at = batch.slot_table.numpy(), batch.out_slots.numpy(), 0
        for req, row, seq_len, extend_len in zip(batch.reqs, batch.rows, batch.seq_lens, batch.extend_lens, strict=True):
            start = seq_len - extend_len
            token_ids = req.token_ids(0, seq_len).tolist()
            assert batch.input_ids[at : at + extend_len].tolist() == token_ids[start:]
            assert batch.positions[at : at + extend_len].tolist() == list(range(start, seq_len))
            hashes = prefix_hashes(token_ids)
            assert out_slots[at : at + extend_len].tolist() == table[row, start:seq_len].tolist()
            self.held[out_slots[at : at + extend_len]] = hashes[start:]
            at += extend_len
        for req, row, seq_len in zip(batch.reqs, batch.rows, batch.seq_lens, strict=True):
            expected = prefix_hashes(req.token_ids(0, seq_len).tolist())
            assert self.held[table[row, :seq_len]].tolist() == expected, f"{req.rid} reads a slot that holds another prefix"
        self.computed += at
        last = self.held[out_slots[batch.logits_rows.numpy()]]
        chosen = [self._choose(req, held) for req, held in zip(batch.sampled, last.tolist(), strict=True)]
        return CountedStep(chosen, [None] * len(last), [self._score(run) for run in batch.scored])

    def _choose(self, req: Req, held: int) -> int:
        """The token of a hash, or the next one that the request's grammar allows."""
        allowed = np.ones(VOCAB, dtype=np.uint8)
        if req.matcher is not None:
            mask = np.zeros(-(-VOCAB // 32), dtype=np.int32)
            req.matcher.fill_mask(mask)
            allowed = np.unpackbits(mask.view(np.uint8), count=VOCAB, bitorder="little")
        ordered = [token_id % VOCAB for token_id in range(held % VOCAB, held % VOCAB + VOCAB)]
        return next((token_id for token_id in ordered if allowed[token_id]), NO_TOKEN)

    def _score(self, run: ScoredRun) -> list[TokenLogprob]:
        """Each token after one of the run, as likely as the hash of what is before it says."""
        token_ids = run.req.token_ids(0, run.start + run.length + 1).tolist()
        hashes = prefix_hashes(token_ids)
        return [TokenLogprob(token_ids[at + 1], float(hashes[at])) for at in range(run.start, run.start + run.length)]


def hash_engine(
    num_slots: int,
    page_size: int = 1,
    *,
    max_context_len: int = 512,
    grammars: Grammars | None = None,
    adapters: AdapterWeights | None = None,
    weights: ModelWeights | None = None,
    observed: bool = False,
    **settings: Any,
) -> Engine:
    """An engine over a HashRunner. `settings` are those of EngineConfig; a small budget and few rows by default."""
    config = EngineConfig(**{"max_batch_tokens": 16, "max_running": 8, "decode_reserve": 4, **settings})
    limits = Limits(VOCAB, max_context_len, num_slots, page_size)
    info = EngineInfo(model="hash", dtype="none", device="cpu", limits=limits, kv_bytes=0, num_threads=1)
    runner = HashRunner(num_slots, page_size)
    engine = assemble(config, info, runner, grammars=grammars, adapters=adapters, weights=weights)
    if observed:
        engine.observer = Observer(engine.scheduler, config.eviction_policy)
    return engine
