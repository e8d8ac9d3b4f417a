"""The infinite cache against a set of all prefixes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from radixserve.bench.infinite_cache import Exchange, InfiniteCache, ideal_cached_tokens
from radixserve.tokens import token_bytes

sequences = st.lists(st.lists(st.integers(0, 3) | st.sampled_from([255, 256, 65536]), max_size=8), max_size=12)


@given(sequences)
def test_match_is_the_longest_prefix_of_anything_inserted(inserted: list[list[int]]) -> None:
    cache, prefixes = InfiniteCache(), {()}
    for sequence in inserted:
        expected = max(n for n in range(len(sequence) + 1) if tuple(sequence[:n]) in prefixes)
        assert cache.match(token_bytes(sequence)) == expected
        cache.insert(token_bytes(sequence))
        prefixes |= {tuple(sequence[:n]) for n in range(len(sequence) + 1)}


def exchange(start_s: float, end_s: float, prompt: list[int], answer: list[int]) -> Exchange:
    return Exchange(start_s, end_s, token_bytes(prompt), token_bytes(answer))


def test_the_next_turn_reuses_prompt_and_answer() -> None:
    turns = [exchange(0, 1, [1, 2, 3], [4, 5]), exchange(2, 3, [1, 2, 3, 4, 5, 6, 7], [])]
    assert ideal_cached_tokens(turns) == 5


def test_one_token_of_a_repeated_prompt_is_computed() -> None:
    assert ideal_cached_tokens([exchange(0, 1, [1, 2, 3], []), exchange(2, 3, [1, 2, 3], [])]) == 2


def test_an_answer_is_reusable_only_after_its_end_and_a_prompt_from_its_start() -> None:
    overlapping = [exchange(0, 5, [1, 2], [3, 4]), exchange(1, 2, [1, 2, 3, 4, 5], [])]
    assert ideal_cached_tokens(overlapping) == 2
    assert ideal_cached_tokens(reversed(overlapping)) == 2


def test_sequences_may_be_long() -> None:
    rng = np.random.default_rng(0)
    long = token_bytes(rng.integers(0, 2**31 - 1, 100_000))
    other = long[:-4] + token_bytes([7])
    cache = InfiniteCache()
    cache.insert(long)
    assert cache.match(other) == 99_999
