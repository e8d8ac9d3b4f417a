"""Which requests of a step share a call."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from radixserve.attention.torch_plan import GROUP_KEYS, MAX_PADDED, causal_mask, partition


@given(st.lists(st.tuples(st.sampled_from([1, 1, 2, 300]), st.integers(1, 20_000)), min_size=1, max_size=80))
def test_every_request_is_in_one_group_and_padding_is_bounded(requests: list[tuple[int, int]]) -> None:
    extend_lens, num_keys = map(list, zip(*requests, strict=True))
    groups = partition(extend_lens, num_keys)
    assert sorted(b for group in groups for b in group) == list(range(len(requests)))
    for group in groups:
        keys = [num_keys[b] for b in group]
        padded = max(keys) * len(keys)
        assert len(group) == 1 or all(extend_lens[b] == 1 for b in group)
        assert len(group) == 1 or padded <= min(GROUP_KEYS, MAX_PADDED * sum(keys))


def test_decodes_of_one_length_share_a_call() -> None:
    assert partition([1, 5, 1, 5, 1], [100, 100, 100, 100, 100]) == [[0, 2, 4], [1], [3]]


def test_a_mask_shows_the_query_itself_and_the_window_before_it() -> None:
    queries, keys = torch.tensor([[2, 3]]), torch.arange(5)[None]
    seen = causal_mask(queries, keys, None, 1, torch.float32) == 0
    assert seen.tolist() == [[[[True, True, True, False, False], [True, True, True, True, False]]]]
    seen = causal_mask(queries, keys, 2, 1, torch.float32) == 0
    assert seen.tolist() == [[[[False, True, True, False, False], [False, False, True, True, False]]]]
    assert torch.equal(
        causal_mask(queries, keys, 2, 3, torch.float32), causal_mask(queries, keys, 2, 1, torch.float32).repeat_interleave(3, 2)
    )
