"""The KV pool: what it stores, what it leaves alone, what it refuses."""

from pathlib import Path

import pytest
import torch

from radixserve.cache.kv_pool import KVPool, slot_bytes
from radixserve.errors import ConfigError


def make_pool(dtype: torch.dtype = torch.float32, page_size: int = 1) -> KVPool:
    """Three layers, 20 slots, every number different."""
    pool = KVPool(3, 20, page_size, 2, 4, dtype)
    pool.k_buffer.copy_(torch.arange(pool.k_buffer.numel()).view_as(pool.k_buffer))
    pool.v_buffer.copy_(-pool.k_buffer)
    return pool


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_the_buffers_have_a_dummy_page_beside_the_slots(page_size: int) -> None:
    pool = make_pool(page_size=page_size)
    assert pool.k_buffer.shape == pool.v_buffer.shape == (3, 20 + page_size, 2, 4)
    assert pool.nbytes == pool.k_buffer.nbytes + pool.v_buffer.nbytes == (20 + page_size) * slot_bytes(3, 2, 4, torch.float32)


def test_a_slot_of_the_default_model_costs_23_kb_in_bfloat16() -> None:
    assert slot_bytes(30, 3, 64, torch.bfloat16) == 23_040


def test_store_writes_the_named_slots_of_one_layer_in_the_pools_dtype() -> None:
    pool = make_pool(torch.bfloat16)
    expected_k, expected_v = pool.k_buffer.clone(), pool.v_buffer.clone()
    slots, k, v = torch.tensor([20, 3, 7]), torch.randn(3, 2, 4), torch.randn(3, 2, 4)
    pool.store(1, slots, k, v)
    for token, slot in enumerate(slots.tolist()):
        expected_k[1, slot], expected_v[1, slot] = k[token].bfloat16(), v[token].bfloat16()
    assert torch.equal(pool.k_buffer, expected_k)
    assert torch.equal(pool.v_buffer, expected_v)


def test_copy_reads_everything_before_it_writes() -> None:
    pool = make_pool()
    before_k, before_v = pool.k_buffer.clone(), pool.v_buffer.clone()
    pool.copy(torch.tensor([2, 3, 4]), torch.tensor([3, 4, 19]))
    moved = {3: 2, 4: 3, 19: 4}
    origin = [moved.get(slot, slot) for slot in range(21)]
    assert torch.equal(pool.k_buffer, before_k[:, origin])
    assert torch.equal(pool.v_buffer, before_v[:, origin])


def test_offsets_are_64_bit(tmp_path: Path) -> None:
    """Slot 4,000,000 at 1,024 numbers a slot lies behind 2^31 numbers. The buffers are sparse files: a few pages of them exist."""
    last, shape = 4_000_000, (1, 4_000_001, 16, 64)
    pool = KVPool(1, 1, 1, 16, 64, torch.bfloat16)
    for name in ("k_buffer", "v_buffer"):
        numbers = torch.from_file(str(tmp_path / name), shared=True, size=4_000_001 * 1024, dtype=torch.bfloat16)
        setattr(pool, name, numbers.view(shape))
    k, v = torch.randn(2, 16, 64).bfloat16(), torch.randn(2, 16, 64).bfloat16()
    slots = torch.tensor([last, 5])
    pool.store(0, slots, k, v)
    assert torch.equal(pool.k_buffer[0].index_select(0, slots), k)
    assert torch.equal(pool.v_buffer[0, last], v[0])
    pool.copy(torch.tensor([last]), torch.tensor([last - 1]))
    assert torch.equal(pool.k_buffer[0, last - 1], k[0])
    wrapped = last * 1024 % 2**31 // 1024
    assert not pool.k_buffer[0, wrapped].any()
    assert not pool.v_buffer[0, wrapped].any()


def test_a_pool_whose_slot_numbers_exceed_int32_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"2147483648 slots: slot numbers end at 2147483647; lower --num-slots"):
        KVPool(1, 2**31, 1, 1, 1, torch.float32)


def test_a_pool_larger_than_the_memory_is_refused_with_numbers() -> None:
    with pytest.raises(ConfigError, match=r"2000000000 slots needs 42915\.34 GiB .*\(23040 bytes a slot\): .*lower --num-slots"):
        KVPool(30, 2_000_000_000, 1, 3, 64, torch.bfloat16)
