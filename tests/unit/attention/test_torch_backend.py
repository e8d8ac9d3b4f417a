"""The torch backend against a dense float64 computation: any ragged batch, any slots, any chunking, any window."""

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from radixserve.attention.torch_backend import TorchBackend
from radixserve.attention.torch_plan import MAX_MASK, MIN_ROWS
from radixserve.batch import ForwardBatch
from radixserve.cache.kv_pool import KVPool

NUM_KV_HEADS, QUERIES, HEAD_DIM = 2, 3, 8
NUM_HEADS = NUM_KV_HEADS * QUERIES
SCALE = 0.3
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}


@dataclass
class Sequence:
    """All queries, keys and values of one request, float64, and the slots of its tokens."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    slots: torch.Tensor

    def dense(self, window: int | None = None) -> torch.Tensor:
        """[len, NUM_HEADS, HEAD_DIM]: one softmax a query, written out."""
        out = torch.empty_like(self.q)
        for i in range(len(self.q)):
            first = 0 if window is None else max(0, i - window + 1)
            for head in range(NUM_HEADS):
                scores = self.k[first : i + 1, head // QUERIES] @ self.q[i, head] * SCALE
                out[i, head] = scores.softmax(0) @ self.v[first : i + 1, head // QUERIES]
        return out


def make_sequences(lengths: list[int], seed: int = 0) -> list[Sequence]:
    """Random sequences on scattered slots; numbers that every dtype holds exactly, so that dtypes differ by arithmetic alone."""
    generator = torch.Generator().manual_seed(seed)
    slots = (torch.randperm(sum(lengths) + 7, generator=generator) + 1)[: sum(lengths)]

    def draw(length: int, heads: int) -> torch.Tensor:
        return torch.randint(-16, 17, (length, heads, HEAD_DIM), generator=generator).double() / 8

    return [
        Sequence(draw(n, NUM_HEADS), draw(n, NUM_KV_HEADS), draw(n, NUM_KV_HEADS), own)
        for n, own in zip(lengths, torch.split(slots, lengths), strict=True)
    ]


def make_batch(sequences: list[Sequence], cached_lens: list[int], seq_lens: list[int]) -> ForwardBatch:
    """Each sequence computes its tokens [cached_len, seq_len). Rows of the table run backwards; what they don't use is slot 0."""
    rows = list(range(len(sequences) - 1, -1, -1))
    table = torch.zeros((len(sequences), max(seq_lens) + 3), dtype=torch.int32)
    for row, sequence, seq_len in zip(rows, sequences, seq_lens, strict=True):
        table[row, :seq_len] = sequence.slots[:seq_len].int()
    spans = [range(start, end) for start, end in zip(cached_lens, seq_lens, strict=True)]
    num_tokens = sum(map(len, spans))
    return ForwardBatch(
        reqs=[],
        extend_lens=[len(span) for span in spans],
        seq_lens=seq_lens,
        rows=rows,
        input_ids=torch.zeros(num_tokens, dtype=torch.int64),
        positions=torch.tensor([position for span in spans for position in span]),
        out_slots=torch.cat([s.slots[span.start : span.stop] for s, span in zip(sequences, spans, strict=True)]),
        logits_rows=torch.empty(0, dtype=torch.int64),
        sampled=[],
        slot_table=table,
    )


def make_backend(num_slots: int, dtype: torch.dtype = torch.float64, num_layers: int = 2) -> TorchBackend:
    """A backend whose pool is poisoned: whoever reads a slot that was not stored gets NaN."""
    pool = KVPool(num_layers, num_slots, 1, NUM_KV_HEADS, HEAD_DIM, dtype)
    pool.k_buffer.fill_(math.nan)
    pool.v_buffer.fill_(math.nan)
    return TorchBackend(pool)


def run(
    backend: TorchBackend,
    sequences: list[Sequence],
    cached_lens: list[int],
    seq_lens: list[int],
    *,
    window: int | None = None,
    layer: int = 0,
) -> list[torch.Tensor]:
    """One step; the output of each sequence's tokens [cached_len, seq_len), in float64."""
    batch = make_batch(sequences, cached_lens, seq_lens)
    spans = list(zip(sequences, cached_lens, seq_lens, strict=True))
    q, k, v = (
        torch.cat([getattr(s, name)[start:end] for s, start, end in spans]).to(backend.pool.dtype) for name in ("q", "k", "v")
    )
    plan = backend.plan(batch)
    backend.pool.store(layer, batch.out_slots, k, v)
    out = backend.attend(q, layer, plan, scale=SCALE, window=window)
    assert out.shape == q.shape
    assert out.dtype == q.dtype
    return list(torch.split(out.double(), batch.extend_lens))


def solo(sequence: Sequence, dtype: torch.dtype = torch.float64, window: int | None = None) -> torch.Tensor:
    """The whole sequence in one step, alone, in a pool of its own."""
    backend = make_backend(int(sequence.slots.max()), dtype)
    return run(backend, [sequence], [0], [len(sequence.q)], window=window)[0]


def close(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype = torch.float64) -> None:
    torch.testing.assert_close(a, b, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("length", [1, 63, 64, 65, 257])
def test_a_prompt_equals_the_dense_computation(length: int, dtype: torch.dtype) -> None:
    (sequence,) = make_sequences([length])
    close(solo(sequence, dtype), sequence.dense(), dtype)


@pytest.mark.parametrize("window", [1, 5, 64, 65, 1000])
@pytest.mark.parametrize("cached_len", [0, 1, 63, 64, 99])
def test_a_window_hides_what_lies_further_back(window: int, cached_len: int) -> None:
    (sequence,) = make_sequences([100])
    backend = make_backend(120)
    outputs = [
        run(backend, [sequence], [start], [end], window=window)[0]
        for start, end in ((0, cached_len), (cached_len, 100))
        if start < end
    ]
    close(torch.cat(outputs), sequence.dense(window))


def test_layers_with_and_without_a_window_share_a_step() -> None:
    sequences = make_sequences([40, 9])
    backend = make_backend(60)
    batch = make_batch(sequences, [0, 0], [40, 9])
    q, k, v = (torch.cat([getattr(s, name) for s in sequences]) for name in ("q", "k", "v"))
    plan = backend.plan(batch)
    for layer, window in ((0, None), (1, 8), (0, 8), (1, None)):
        backend.pool.store(layer, batch.out_slots, k, v)
        out = backend.attend(q, layer, plan, scale=SCALE, window=window)
        close(out, torch.cat([s.dense(window) for s in sequences]))


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
def test_decodes_of_unequal_length_share_a_step(dtype: torch.dtype) -> None:
    lengths = [1, 63, 64, 65, 257, 60, 250]
    sequences = make_sequences(lengths)
    backend = make_backend(sum(lengths) + 7, dtype)
    earlier = [n - 1 for n in lengths[1:]]
    run(backend, sequences[1:], [0] * len(earlier), earlier)
    for out, sequence in zip(run(backend, sequences, [0, *earlier], lengths), sequences, strict=True):
        close(out, sequence.dense()[-1:], dtype)


lengths_st = st.lists(st.one_of(st.integers(1, 12), st.sampled_from([63, 64, 65, 100])), min_size=1, max_size=6)


@settings(max_examples=60)
@given(lengths=lengths_st, seed=st.integers(0, 2**31), window=st.one_of(st.none(), st.integers(1, 80)), data=st.data())
def test_chunks_and_batch_mates_change_nothing(lengths: list[int], seed: int, window: int | None, data: st.DataObject) -> None:
    """Every step advances a random set of requests, each by a random chunk; all outputs equal the dense ones."""
    sequences = make_sequences(lengths, seed)
    backend = make_backend(sum(lengths) + 7)
    done = [0] * len(lengths)
    outputs: list[list[torch.Tensor]] = [[] for _ in lengths]
    while open_ := [i for i, n in enumerate(lengths) if done[i] < n]:
        members = data.draw(st.lists(st.sampled_from(open_), min_size=1, unique=True))
        ends = [data.draw(st.one_of(st.just(done[i] + 1), st.integers(done[i] + 1, lengths[i]))) for i in members]
        step = run(backend, [sequences[i] for i in members], [done[i] for i in members], ends, window=window, layer=1)
        for i, end, out in zip(members, ends, step, strict=True):
            done[i] = end
            outputs[i].append(out)
    for sequence, parts in zip(sequences, outputs, strict=True):
        close(torch.cat(parts), sequence.dense(window))


def test_requests_read_a_prefix_they_share_in_place() -> None:
    """Two requests whose tables name the same slots for their first 50 tokens; only the first one computed them."""
    first, second = make_sequences([64, 70])
    second.k[:50], second.v[:50], second.slots[:50] = first.k[:50], first.v[:50], first.slots[:50]
    backend = make_backend(150)
    run(backend, [first], [0], [50])
    outputs = run(backend, [first, second], [50, 50], [64, 70])
    close(outputs[0], first.dense()[50:])
    close(outputs[1], second.dense()[50:])


def test_the_pools_precision_applies_to_new_tokens_too() -> None:
    """K and V of this step are rounded to the pool's dtype before they are read, like those of a reused prefix."""
    (sequence,) = make_sequences([33])
    sequence.k += 1e-3
    backend = make_backend(50, torch.bfloat16)
    batch = make_batch([sequence], [0], [33])
    plan = backend.plan(batch)
    backend.pool.store(0, batch.out_slots, sequence.k, sequence.v)
    out = backend.attend(sequence.q, 0, plan, scale=SCALE)
    sequence.k = sequence.k.bfloat16().double()
    assert out.dtype == torch.float64
    close(out, sequence.dense())


def test_queries_may_be_views_into_a_fused_projection() -> None:
    (sequence,) = make_sequences([20])
    fused = torch.cat([sequence.q, sequence.k, sequence.v], dim=1)
    q, k, v = torch.split(fused, [NUM_HEADS, NUM_KV_HEADS, NUM_KV_HEADS], dim=1)
    backend = make_backend(40)
    batch = make_batch([sequence], [0], [20])
    plan = backend.plan(batch)
    backend.pool.store(0, batch.out_slots, k, v)
    close(backend.attend(q, 0, plan, scale=SCALE), sequence.dense())


@pytest.mark.parametrize("num_requests", [1, 7])
def test_a_decode_batch_of_many_keys_is_cut_into_several_calls(num_requests: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("radixserve.attention.torch_plan.GROUP_KEYS", 64)
    lengths = [30 + i for i in range(num_requests)]
    sequences = make_sequences(lengths)
    backend = make_backend(sum(lengths) + 7)
    run(backend, sequences, [0] * num_requests, [n - 1 for n in lengths])
    for out, sequence in zip(run(backend, sequences, [n - 1 for n in lengths], lengths), sequences, strict=True):
        close(out, sequence.dense()[-1:])


@pytest.mark.parametrize("window", [None, 1, 30, 70])
@pytest.mark.parametrize("block", [1, 7, 64, 99])
def test_a_chunk_with_a_large_mask_is_attended_in_blocks_of_tokens(
    block: int, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same numbers, and no mask with more than a block's."""
    monkeypatch.setattr("radixserve.attention.torch_plan.MAX_MASK", 0)
    monkeypatch.setattr("radixserve.attention.torch_plan.MIN_ROWS", block * QUERIES)
    sequences = make_sequences([150, 40, 1])
    backend, cached_lens, seq_lens = make_backend(200), [50, 0, 0], [150, 40, 1]
    run(backend, sequences[:1], [0], [50], window=window)
    for out, sequence, start in zip(
        run(backend, sequences, cached_lens, seq_lens, window=window), sequences, cached_lens, strict=True
    ):
        close(out, sequence.dense(window)[start:])
    groups = backend.plan(make_batch(sequences, cached_lens, seq_lens)).groups(window, QUERIES, torch.float64)
    assert max(group.mask.shape[2] for group in groups if group.mask is not None) == block * QUERIES
    assert sum(len(part.tokens) for group in groups for part in group.blocks()) == 100 + 40 + 1


def test_the_mask_of_a_chunk_is_bounded_whatever_its_context() -> None:
    (sequence,) = make_sequences([40_000])
    plan = make_backend(1).plan(make_batch([sequence], [39_488], [40_000]))
    (group,) = plan.groups(None, QUERIES, torch.float32)
    assert group.mask is not None
    assert group.mask.numel() <= max(MAX_MASK, MIN_ROWS * 40_000)


def test_the_workspace_does_not_grow_at_every_chunk_of_a_prompt() -> None:
    (sequence,) = make_sequences([400])
    backend, sizes = make_backend(420), set()
    for start in range(0, 400, 4):
        run(backend, [sequence], [start], [start + 4])
        sizes.add(backend._workspace.shape[1])
    assert len(sizes) <= 13, "each at least half as large again as the one before"
    assert max(sizes) < 1.5 * 400
