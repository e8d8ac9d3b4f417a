import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixserve.cache.slot_pool import SlotPool
from radixserve.errors import ConfigError, OutOfSlotsError


def test_slots_come_in_order_and_return_at_the_back() -> None:
    pool = SlotPool(11)
    first = pool.alloc(5)
    assert first.tolist() == [1, 2, 3, 4, 5]
    assert first.dtype == np.int32
    pool.free(first[1:3])
    assert pool.free_slots().tolist() == [6, 7, 8, 9, 10, 11, 2, 3]
    assert pool.alloc(7).tolist() == [6, 7, 8, 9, 10, 11, 2]
    assert pool.free_size == 1


def test_pages_are_whole_and_page_zero_belongs_to_nobody() -> None:
    pool = SlotPool(14, page_size=4)
    assert pool.num_slots == 12
    assert pool.alloc(8).tolist() == [4, 5, 6, 7, 8, 9, 10, 11]
    pool.free(np.array([8, 9, 10, 11], dtype=np.int32))
    assert pool.free_slots().tolist() == [12, 13, 14, 15, 8, 9, 10, 11]


def test_too_many_slots_are_refused_and_none_taken() -> None:
    pool = SlotPool(3)
    with pytest.raises(OutOfSlotsError, match=r"needs 4 slots: 3 free; raise --num-slots"):
        pool.alloc(4)
    assert pool.free_slots().tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("num_slots", "page_size", "message"),
    [
        (0, 1, "0 slots hold no page of 1: raise --num-slots"),
        (15, 16, "15 slots hold no page of 16"),
        (8, 0, "the page size is 0"),
        (2**31, 1, "lower --num-slots"),
    ],
)
def test_a_pool_that_cannot_be_names_the_remedy(num_slots: int, page_size: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SlotPool(num_slots, page_size)


@given(page_size=st.integers(1, 5), moves=st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=40))
def test_no_slot_is_lost_or_given_twice(page_size: int, moves: list[tuple[bool, int]]) -> None:
    pool = SlotPool(9 * page_size, page_size)
    held: list[int] = []
    ring = list(range(page_size, 10 * page_size))
    for take, num_pages in moves:
        size = num_pages * page_size
        if take and size <= pool.free_size:
            assert pool.alloc(size).tolist() == ring[:size]
            held, ring = held + ring[:size], ring[size:]
        elif not take:
            pool.free(np.array(held[:size], dtype=np.int32))
            held, ring = held[size:], ring + held[:size]
        assert pool.free_slots().tolist() == ring
