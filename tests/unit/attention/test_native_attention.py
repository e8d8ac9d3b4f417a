"""The native kernel over a step's batch: it stores, attends, and gives bits that depend on the prefix alone."""

import math

import pytest
import torch

from radixserve import kernels

if kernels.NOT_BUILT is not None:
    pytest.skip(kernels.NOT_BUILT, allow_module_level=True)

from radixserve.attention.torch_backend import TorchBackend
from radixserve.batch import ForwardBatch
from radixserve.cache.kv_pool import KVPool
from radixserve.kernels import _native

NUM_KV_HEADS, NUM_HEADS, HEAD_DIM, NUM_LAYERS = 2, 6, 32, 2
SCALE = 0.25


def make_pool(num_slots: int) -> KVPool:
    """A pool whose slots hold NaN until something is stored there."""
    pool = KVPool(NUM_LAYERS, num_slots, 1, NUM_KV_HEADS, HEAD_DIM, torch.bfloat16)
    pool.k_buffer.fill_(math.nan)
    pool.v_buffer.fill_(math.nan)
    return pool


class NativeBackend:
    """The native kernel as an `AttentionBackend`."""

    def __init__(self, pool: KVPool) -> None:
        self.pool = pool
        self._attention = _native.AttentionPool(pool.k_buffer, pool.v_buffer)

    def plan(self, batch: ForwardBatch) -> "_native.AttentionStep":
        return _native.AttentionStep(batch.slot_table, batch.rows, batch.seq_lens, batch.extend_lens)

    def attend(
        self, q: torch.Tensor, layer: int, plan: "_native.AttentionStep", *, scale: float, window: int | None = None
    ) -> torch.Tensor:
        q = q.contiguous()
        out = torch.empty_like(q)
        self._attention.attend(plan, layer, q, out, scale, window or 0)
        return out


class Prompts:
    """q, k and v of some prompts, float32, and their slots."""

    def __init__(self, lengths: list[int], slot_seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(1)
        self.qkv = [torch.randn(n, NUM_HEADS + 2 * NUM_KV_HEADS, HEAD_DIM, generator=generator) for n in lengths]
        self.num_slots = sum(lengths) + 9
        slots = torch.randperm(self.num_slots, generator=torch.Generator().manual_seed(slot_seed)) + 1
        self.slots = torch.split(slots[: sum(lengths)], lengths)

    def step(
        self, backend: NativeBackend | TorchBackend, spans: dict[int, range], layer: int = 0, **options: int
    ) -> list[torch.Tensor]:
        """Prompt b computes the tokens `spans[b]`, as one batch; rows of the table run backwards."""
        batch = self.batch(spans)
        q, k, v = torch.split(
            torch.cat([self.qkv[b][span.start : span.stop] for b, span in spans.items()]),
            [NUM_HEADS, NUM_KV_HEADS, NUM_KV_HEADS],
            dim=1,
        )
        plan = backend.plan(batch)
        backend.pool.store(layer, batch.out_slots, k, v)
        out = backend.attend(q, layer, plan, scale=SCALE, **options)
        assert out.dtype == q.dtype
        return list(torch.split(out, batch.extend_lens))

    def batch(self, spans: dict[int, range]) -> ForwardBatch:
        rows = list(range(len(spans)))[::-1]
        table = torch.zeros(len(spans), max(span.stop for span in spans.values()) + 2, dtype=torch.int32)
        for row, (b, span) in zip(rows, spans.items(), strict=True):
            table[row, : span.stop] = self.slots[b][: span.stop].int()
        return ForwardBatch(
            reqs=[],
            extend_lens=[len(span) for span in spans.values()],
            seq_lens=[span.stop for span in spans.values()],
            rows=rows,
            input_ids=torch.empty(0),
            positions=torch.empty(0),
            out_slots=torch.cat([self.slots[b][span.start : span.stop] for b, span in spans.items()]),
            logits_rows=torch.empty(0),
            sampled=[],
            slot_table=table,
        )


LENGTHS = [1, 63, 64, 65, 257]


@pytest.mark.parametrize("window", [None, 1, 70])
def test_it_agrees_with_torch(window: int | None) -> None:
    prompts = Prompts(LENGTHS)
    spans = {b: range(n) for b, n in enumerate(LENGTHS)}
    native, torchs = NativeBackend(make_pool(prompts.num_slots)), TorchBackend(make_pool(prompts.num_slots))
    for mine, theirs in zip(prompts.step(native, spans, window=window), prompts.step(torchs, spans, window=window), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=2e-2)
    assert torch.equal(native.pool.k_buffer.nan_to_num(), torchs.pool.k_buffer.nan_to_num())


def test_decoding_token_by_token_gives_the_bits_of_one_prefill() -> None:
    whole, stepwise = Prompts([150, 90]), Prompts([150, 90], slot_seed=5)
    backend = NativeBackend(make_pool(whole.num_slots))
    expected = whole.step(backend, {0: range(150), 1: range(90)})
    backend = NativeBackend(make_pool(whole.num_slots))
    outputs = [stepwise.step(backend, {0: range(60), 1: range(1)})]
    outputs += [stepwise.step(backend, {1: range(i - 59, i - 58), 0: range(i, i + 1)})[::-1] for i in range(60, 148)]
    outputs += [stepwise.step(backend, {0: range(148, 150), 1: range(89, 90)})]
    for b in range(2):
        assert torch.equal(torch.cat([step[b] for step in outputs]), expected[b])


def test_layers_with_and_without_a_window_share_a_step() -> None:
    prompts = Prompts([100])
    backend, oracle = NativeBackend(make_pool(prompts.num_slots)), TorchBackend(make_pool(prompts.num_slots))
    for layer, window in ((0, None), (1, 8), (0, 8), (1, None)):
        (mine,), (theirs,) = (prompts.step(b, {0: range(100)}, layer, window=window) for b in (backend, oracle))
        torch.testing.assert_close(mine, theirs, rtol=0, atol=2e-2)


def test_other_pools_are_refused() -> None:
    with pytest.raises(ValueError, match="k_buffer is of dtype float32: must be bfloat16"):
        NativeBackend(KVPool(1, 4, 1, 1, 8, torch.float32))
