"""The runner that computes: copies, forward, sampling."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from radixserve.batch import ForwardBatch, ScoredRun
from radixserve.cache.kv_pool import KVPool
from radixserve.ipc import TokenLogprob
from radixserve.models.decoder import AnyDecoder
from radixserve.sampling.grammar_masks import GrammarMasks
from radixserve.sampling.logprobs import score_tokens
from radixserve.sampling.sampler import Sampler

MAX_SCORED_LOGITS = 1 << 22
"""Logits of a prompt that are held at once when it is scored: 16 MiB in float32, whatever the prompt's length."""


@dataclass(frozen=True, slots=True)
class DoneStep:
    """A step that was computed when it was launched."""

    token_ids: list[int]
    logprobs: list[TokenLogprob | None]
    prompt_logprobs: list[list[TokenLogprob]]

    def result(self) -> "DoneStep":
        return self


class ForwardRunner:
    """One decoder over one KV pool, on one device. It samples nothing: what it computes is for another rank to sample from."""

    def __init__(self, decoder: AnyDecoder, pool: KVPool) -> None:
        self.decoder = decoder
        self.pool = pool
        self._begin = decoder.steps(pool)
        self._mask_thread = ThreadPoolExecutor(1, thread_name_prefix="masks")

    @torch.inference_mode()
    def launch(self, batch: ForwardBatch) -> DoneStep:
        masks = self._begin_masks(batch)
        x, _ = self._compute(batch)
        if masks is not None:
            masks.result()
        for run in batch.scored:
            for _ in self._logits_of(x, run):
                pass
        return DoneStep([], [], [])

    def _begin_masks(self, batch: ForwardBatch) -> Future[GrammarMasks] | None:
        """Masks of a batch, made while the model runs: both let go of the interpreter.

        Every rank makes them: a matcher counts its work, so all ranks must ask theirs the same to agree on when it has had enough.
        """
        if all(req.matcher is None for req in batch.sampled):
            return None
        return self._mask_thread.submit(GrammarMasks, batch.sampled, self.decoder.config.vocab_size)

    def _compute(self, batch: ForwardBatch) -> tuple[Any, torch.Tensor]:
        """The stream of a step, and the logits to sample from."""
        batch = batch.to(self.pool.k_buffer.device)
        for source, target in batch.copies:
            self.pool.copy(source, target)
        x = self.decoder.forward(batch, self._begin(batch))
        return x, self.decoder.logits(x, batch.logits_rows)

    def _logits_of(self, x: Any, run: ScoredRun) -> Iterator[torch.Tensor]:
        """Logits of a scored run, piece by piece: at most MAX_SCORED_LOGITS are held at once."""
        size = max(MAX_SCORED_LOGITS // self.decoder.config.vocab_size, 1)
        rows = torch.arange(run.row, run.row + run.length, device=self.decoder.device)
        for i in range(0, run.length, size):
            yield self.decoder.logits(x, rows[i : i + size])


class ModelRunner(ForwardRunner):
    """The one that samples too."""

    def __init__(self, decoder: AnyDecoder, pool: KVPool) -> None:
        super().__init__(decoder, pool)
        self._sampler = Sampler()

    @torch.inference_mode()
    def launch(self, batch: ForwardBatch) -> DoneStep:
        masks = self._begin_masks(batch)
        x, logits = self._compute(batch)
        sample = self._sampler.sample(logits, batch.sampled, masks.result() if masks is not None else None)
        return DoneStep(sample.token_ids, sample.logprobs, [self._score(x, run) for run in batch.scored])

    def _score(self, x: Any, run: ScoredRun) -> list[TokenLogprob]:
        """Logprobs of the tokens after those of `run`. `x`: the stream of the step."""
        count = run.req.params.prompt_logprobs
        assert count is not None
        token_ids = run.req.token_ids(run.start + 1, run.start + 1 + run.length).tolist()
        scores: list[TokenLogprob] = []
        for logits in self._logits_of(x, run):
            scores += score_tokens(logits, token_ids[len(scores) : len(scores) + len(logits)], count)
        return scores
