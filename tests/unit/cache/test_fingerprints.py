"""Fingerprints name prefixes, however they are cut into edges."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from radixserve.cache.events import CacheEvent, Evicted, Inserted
from radixserve.cache.fingerprints import TreeFingerprints, go_on, start
from radixserve.tokens import SHARED, ExtraKey, token_bytes
from tests.hash_runner import hash_engine
from tests.traffic import Traffic

TOKENS = st.lists(st.integers(0, 200_000), max_size=40)


@given(first=TOKENS, second=TOKENS)
def test_a_fingerprint_does_not_depend_on_where_it_is_taken_up(first: list[int], second: list[int]) -> None:
    whole, end = go_on(start(SHARED), token_bytes(first + second))
    head, middle = go_on(start(SHARED), token_bytes(first))
    tail, same_end = go_on(middle, token_bytes(second))
    assert np.concatenate([head, tail]).tolist() == whole.tolist()
    assert end == same_end


@given(first=TOKENS, second=TOKENS)
def test_equal_fingerprints_are_equal_prefixes(first: list[int], second: list[int]) -> None:
    mine, others = (go_on(start(SHARED), token_bytes(tokens))[0].tolist() for tokens in (first, second))
    for length in range(1, min(len(first), len(second)) + 1):
        assert (mine[length - 1] == others[length - 1]) == (first[:length] == second[:length])
    assert len({*mine}) == len(mine)


def test_namespaces_have_fingerprints_of_their_own() -> None:
    keys = (SHARED, ExtraKey(None, "a"), ExtraKey("a", None), ExtraKey("-", "a"), ExtraKey("", None))
    found = {go_on(start(key), token_bytes([1]))[0].item() for key in keys}
    assert len(found) == len(keys)


def test_following_the_tree_gives_what_its_paths_give() -> None:
    engine = hash_engine(60)
    known: dict[int, list[int]] = {}
    seen = TreeFingerprints()

    def follow(event: CacheEvent) -> None:
        found = seen.follow(event).tolist()
        if isinstance(event, Inserted):
            known[event.serial] = found
        elif isinstance(event, Evicted):
            assert known.get(event.serial, found)[-event.num_tokens :] == found[-event.num_tokens :]

    engine.cache.listeners.append(follow)
    traffic = Traffic(engine)
    for prompt in ([1, 2, 3, 4, 5], [1, 2, 3, 9, 9], [1, 2, 7], list(range(10, 40)), [1, 2, 3, 4, 5, 6]):
        traffic.send(prompt, 3, salt="x" if prompt[-1] == 7 else None)
        traffic.run()
        for root in engine.cache.tree.roots.values():
            stack = [(child, b"") for child in root.children.values()]
            while stack:
                node, above = stack.pop()
                assert seen.before(node.serial) == go_on(start(root.extra_key), above)[1]
                stack += [(child, above + node.key) for child in node.children.values()]
