"""The runner that computes: copies, forward, sampling."""

from dataclasses import dataclass
from pathlib import Path

import torch

from radixserve.attention.backend import AttentionBackend
from radixserve.batch import ForwardBatch
from radixserve.cache.kv_pool import KVPool
from radixserve.models.decoder import Decoder
from radixserve.models.registry import resolve
from radixserve.sampling.grammar_masks import GrammarMasks
from radixserve.sampling.sampler import Sampler, SampleResult


@dataclass(frozen=True, slots=True)
class DoneStep:
    """A step that was computed when it was launched."""

    sample: SampleResult

    def result(self) -> SampleResult:
        return self.sample


class ModelRunner:
    """One decoder over one KV pool, on one device."""

    def __init__(self, decoder: Decoder, attention: AttentionBackend, pool: KVPool) -> None:
        self.decoder = decoder
        self.pool = pool
        self._attention = attention
        self._sampler = Sampler()

    @torch.inference_mode()
    def launch(self, batch: ForwardBatch) -> DoneStep:
        batch = batch.to(self.pool.k_buffer.device)
        for source, target in batch.copies:
            self.pool.copy(source, target)
        self._attention.plan(batch)
        logits = self.decoder.forward(batch, self._attention)
        masks = GrammarMasks(batch.sampled, logits.shape[-1])
        return DoneStep(self._sampler.sample(logits, batch.sampled, masks))

    def update_weights(self, model: str) -> None:
        self.decoder.load_weights(Path(resolve(model)))
