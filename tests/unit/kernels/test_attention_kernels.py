"""The attention kernel at every level against float64, and its bits against themselves: alone, batched, chunked, threaded."""

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from radixserve import kernels

if kernels.NOT_BUILT is not None:
    pytest.skip(kernels.NOT_BUILT, allow_module_level=True)

from radixserve.kernels import _native
from tests.kernel_levels import available_levels

LENGTHS = [1, 63, 64, 65, 257, 1000]
SHAPES = [(3, 3, 64), (2, 2, 128), (1, 1, 8), (2, 7, 80), (1, 9, 256), (2, 4, 96)]
"""KV heads, query heads for each, head dimension."""
ERROR = {"avx512_bf16": 1e-2, "avx512": 1e-2, "avx2": 1e-5, "portable": 1e-5}
"""Weights of keys are rounded to bfloat16 at the first two levels alone."""
HUGE = 3e38


@dataclass
class Chunk:
    """Request `b` computes its tokens [start, end)."""

    b: int
    start: int
    end: int


class Requests:
    """Queries of some requests, and a pool of one layer with their keys and values on random slots; all other slots hold NaN."""

    def __init__(self, lengths: list[int], shape: tuple[int, int, int] = (3, 3, 64), seed: int = 0, slot_seed: int = 0) -> None:
        self.lengths = lengths
        self.num_kv_heads, self.group, self.head_dim = shape
        values = torch.Generator().manual_seed(seed)
        size = sum(lengths) + 50
        slots = torch.randperm(size - 1, generator=torch.Generator().manual_seed(slot_seed))[: sum(lengths)] + 1
        self.slots = torch.split(slots, lengths)
        self.k, self.v = torch.full((2, 1, size, self.num_kv_heads, self.head_dim), math.nan, dtype=torch.bfloat16)
        self.q = []
        for own in self.slots:
            self.q.append(torch.randn(len(own), self.num_kv_heads * self.group, self.head_dim, generator=values).bfloat16())
            self.k[0, own], self.v[0, own] = torch.randn(2, len(own), *self.k.shape[2:], generator=values).bfloat16()

    def attend(
        self, chunks: list[Chunk], *, threads: int = 1, window: int = 0, scale: float = 0.3, dtype: torch.dtype = torch.float32
    ) -> list[torch.Tensor]:
        """One step. The outputs were NaN before."""
        _native.set_num_threads(threads)
        table = torch.zeros(len(chunks), max(self.lengths) + 3, dtype=torch.int32)
        for row, chunk in enumerate(chunks):
            table[row, : chunk.end] = self.slots[chunk.b][: chunk.end].int()
        lens = [chunk.end - chunk.start for chunk in chunks]
        step = _native.AttentionStep(table, list(range(len(chunks))), [chunk.end for chunk in chunks], lens)
        q = torch.cat([self.q[chunk.b][chunk.start : chunk.end] for chunk in chunks])
        out = torch.full(q.shape, math.nan, dtype=dtype)
        _native.AttentionPool(self.k, self.v).attend(step, 0, q, out, scale, window)
        return list(torch.split(out, lens))

    def whole(self, b: int, window: int = 0, scale: float = 0.3) -> torch.Tensor:
        """All tokens of a request in one step, alone, by one thread."""
        return self.attend([Chunk(b, 0, self.lengths[b])], window=window, scale=scale)[0]

    def dense(self, b: int, window: int = 0, scale: float = 0.3) -> torch.Tensor:
        """The same in float64, by definition."""
        k, v = (pool[0, self.slots[b]].double().repeat_interleave(self.group, 1) for pool in (self.k, self.v))
        scores = torch.einsum("qhd,khd->hqk", self.q[b].double(), k) * scale
        position = torch.arange(self.lengths[b])
        age = position[:, None] - position
        hidden = (age < 0) | (age >= window if window else False)
        return torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -math.inf).softmax(-1), v)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> None:
    assert a.dtype == b.dtype
    assert torch.equal(a.view(torch.uint8), b.view(torch.uint8))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("window", [0, 1, 64, 70])
def test_it_is_attention(level: str, shape: tuple[int, int, int], window: int) -> None:
    requests = Requests(LENGTHS if shape[2] == 64 else [1, 65, 257], shape)
    for b in range(len(requests.lengths)):
        torch.testing.assert_close(requests.whole(b, window).double(), requests.dense(b, window), rtol=0, atol=ERROR[level])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("window", [0, 70])
def test_a_decode_has_the_bits_of_the_last_row_of_its_prompt(level: str, shape: tuple[int, int, int], window: int) -> None:
    requests = Requests(LENGTHS, shape)
    decodes = requests.attend([Chunk(b, n - 1, n) for b, n in enumerate(LENGTHS)], threads=2, window=window)
    for b, n in enumerate(LENGTHS):
        prompt = requests.whole(b, window)
        same_bits(decodes[b], prompt[-1:])
        same_bits(requests.attend([Chunk(b, n - 1, n)], threads=2, window=window)[0], prompt[-1:])


def test_a_long_decode_alone_is_cut_over_tiles(level: str) -> None:
    """Three threads and 5,000 keys: the states of tiles are stored and folded by whoever comes last."""
    requests = Requests([5000], (2, 2, 32))
    last = requests.attend([Chunk(0, 4999, 5000)])[0]
    for _ in range(5):
        same_bits(requests.attend([Chunk(0, 4999, 5000)], threads=3)[0], last)
    same_bits(requests.attend([Chunk(0, 4990, 5000)])[0][-1:], last)


@settings(max_examples=60)
@given(
    lengths=st.lists(st.one_of(st.integers(1, 12), st.sampled_from([63, 64, 65, 200])), min_size=1, max_size=5),
    shape=st.sampled_from([(3, 3, 16), (1, 5, 40), (2, 1, 64), (1, 12, 32)]),
    window=st.sampled_from([0, 0, 1, 5, 64, 100]),
    seed=st.integers(0, 1000),
    data=st.data(),
)
@pytest.mark.parametrize("name", available_levels())
def test_chunks_mates_slots_and_threads_change_no_bit(
    name: str, lengths: list[int], shape: tuple[int, int, int], window: int, seed: int, data: st.DataObject
) -> None:
    """Every step advances a random set of requests, each by a random chunk; slots are others than those of the whole."""
    _native.choose_level(name)
    expected = Requests(lengths, shape, seed)
    moved = Requests(lengths, shape, seed, slot_seed=seed + 1)
    done = [0] * len(lengths)
    outputs: list[list[torch.Tensor]] = [[] for _ in lengths]
    while open_ := [b for b, n in enumerate(lengths) if done[b] < n]:
        members = data.draw(st.lists(st.sampled_from(open_), min_size=1, unique=True))
        chunks = [
            Chunk(b, done[b], data.draw(st.one_of(st.just(done[b] + 1), st.integers(done[b] + 1, lengths[b])))) for b in members
        ]
        for chunk, out in zip(chunks, moved.attend(chunks, threads=data.draw(st.integers(1, 3)), window=window), strict=True):
            done[chunk.b] = chunk.end
            outputs[chunk.b].append(out)
    for b, parts in enumerate(outputs):
        same_bits(torch.cat(parts), expected.whole(b, window))


def test_requests_that_share_slots_have_the_bits_of_those_that_do_not(level: str) -> None:
    """Eleven decodes on one prefix of 300 tokens, which ends inside a tile, and two that share 130 of it."""
    lengths = [310 + i for i in range(11)] + [140, 150]
    shared, alone = (Requests(lengths, (2, 3, 32)) for _ in range(2))
    for b, n in enumerate(lengths):
        prefix = min(300, n - 10)
        for pool in (alone.k, alone.v):
            pool[0, alone.slots[b][:prefix]] = pool[0, alone.slots[0][:prefix]]
        shared.slots[b][:prefix] = shared.slots[0][:prefix]
    shared.k, shared.v = alone.k, alone.v
    chunks = [Chunk(b, n - 1, n) for b, n in enumerate(lengths)]
    for window in (0, 90, 280):
        for threads in (1, 2):
            together = shared.attend(chunks, threads=threads, window=window)
            for b, chunk in enumerate(chunks):
                same_bits(together[b], alone.attend([chunk], window=window)[0])


def test_keys_that_nobody_sees_are_not_read(level: str) -> None:
    """What lies before the window or after the last token may be anything: here NaN."""
    requests = Requests([200])
    clean = requests.attend([Chunk(0, 150, 160)], window=30)[0]
    for hidden in (slice(0, 121), slice(160, 200)):
        requests.k[0, requests.slots[0][hidden]] = math.nan
        requests.v[0, requests.slots[0][hidden]] = math.nan
    same_bits(requests.attend([Chunk(0, 150, 160)], window=30)[0], clean)
    same_bits(requests.attend([Chunk(0, 159, 160)], window=30)[0], clean[-1:])


@pytest.mark.parametrize("size", [-HUGE, -1e4, 1e4])
def test_large_scores_are_no_exception(level: str, size: float) -> None:
    """One key's score is far from the others, whose scores are about 1: it takes all the weight or none."""
    requests = Requests([130], (1, 1, 8))
    requests.q[0][:] = 0.5
    requests.k[0, requests.slots[0]] = 0.25
    requests.k[0, requests.slots[0][70], :, 0] = size
    whole = requests.whole(0)
    torch.testing.assert_close(whole.double(), requests.dense(0), rtol=0, atol=ERROR[level])
    same_bits(requests.attend([Chunk(0, 129, 130)])[0], whole[-1:])


def test_equal_scores_of_any_size_give_the_mean(level: str) -> None:
    requests = Requests([130], (1, 1, 8))
    for size in (-1e30, -1e10, 0.0, 1e10, 1e30):
        requests.q[0][:] = 1
        requests.k[0, requests.slots[0]] = size
        torch.testing.assert_close(requests.whole(0).double(), requests.dense(0), rtol=0, atol=ERROR[level])


def test_outputs_are_rounded_once(level: str) -> None:
    requests = Requests([70])
    same_bits(requests.attend([Chunk(0, 0, 70)], dtype=torch.bfloat16)[0], requests.whole(0).bfloat16())


def test_float32_queries_are_rounded_to_bfloat16(level: str) -> None:
    requests = Requests([70])
    expected = requests.whole(0)
    requests.q = [requests.q[0].float() * 1.0009]
    same_bits(requests.whole(0), expected)


def pool_of(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


@pytest.mark.parametrize(
    ("k", "v", "message"),
    [
        (pool_of(1, 4, 2, 8, dtype=torch.float32), pool_of(1, 4, 2, 8), "k_buffer is of dtype float32: must be bfloat16"),
        (pool_of(1, 4, 2, 8), pool_of(1, 5, 2, 8), r"v_buffer has shape \[1, 5, 2, 8\]: must be \[1, 4, 2, 8\]"),
        (pool_of(1, 4, 2, 12), pool_of(1, 4, 2, 12), "head_dim is 12: must be a multiple of 8, at most 256"),
        (pool_of(1, 4, 2, 8).transpose(1, 2), pool_of(1, 2, 4, 8), "k_buffer must be contiguous"),
    ],
)
def test_unfit_pools_are_refused(k: torch.Tensor, v: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _native.AttentionPool(k, v)


@pytest.mark.parametrize(
    ("rows", "seq_lens", "extend_lens", "message"),
    [
        ([2], [4], [1], r"rows\[0\] is 2: slot_table has 2 rows"),
        ([0], [9], [1], "request 0 computes 1 of 9 tokens: .* slot_table has 8 slots"),
        ([0, 1], [4, 4], [1, 5], "request 1 computes 5 of 4 tokens: must be at least 1, at most all of them"),
        ([0], [4], [0], "request 0 computes 0 of 4 tokens"),
        ([0, 1], [4], [1], "must have one entry a request: they have 2, 1 and 1"),
    ],
)
def test_unfit_steps_are_refused(rows: list[int], seq_lens: list[int], extend_lens: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _native.AttentionStep(torch.zeros(2, 8, dtype=torch.int32), rows, seq_lens, extend_lens)


@pytest.mark.parametrize(
    ("layer", "q", "scale", "window", "message"),
    [
        (1, pool_of(2, 4, 8), 1.0, 0, "layer is 1: the pool has 1"),
        (0, pool_of(3, 4, 8), 1.0, 0, r"q has shape \[3, 4, 8\]: must be \[2, any, 8\]"),
        (0, pool_of(2, 3, 8), 1.0, 0, "q has 3 heads: must be a multiple of the pool's 2"),
        (0, pool_of(2, 4, 8, dtype=torch.float16), 1.0, 0, "q is of dtype float16"),
        (0, pool_of(2, 4, 8), 0.0, 0, "scale is 0.0+: must be positive"),
        (0, pool_of(2, 4, 8), 1.0, -1, "window is -1"),
    ],
)
def test_unfit_queries_are_refused(layer: int, q: torch.Tensor, scale: float, window: int, message: str) -> None:
    pool = _native.AttentionPool(pool_of(1, 4, 2, 8), pool_of(1, 4, 2, 8))
    step = _native.AttentionStep(torch.zeros(2, 8, dtype=torch.int32), [0], [4], [2])
    with pytest.raises(ValueError, match=message):
        pool.attend(step, layer, q, torch.empty_like(q), scale, window)
