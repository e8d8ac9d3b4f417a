from radixserve.cache import ghosts
from radixserve.cache.ghosts import Ghosts
from radixserve.cache.node import Node, Root
from radixserve.cache.uses import Use
from radixserve.tokens import ExtraKey, token_bytes

PROMPT = token_bytes(list(range(100)))


def part(serial: int, parent: Node, start: int, end: int) -> Node:
    node = Node(serial, parent, PROMPT[start * 4 : end * 4], None, 0, 0)
    node.use = Use(0, 1, 1)
    return node


def test_a_prompt_finds_its_ghosts_whatever_went_first() -> None:
    memory, root = Ghosts(), Root(1, ExtraKey(), 0)
    top = part(2, root, 0, 7)
    middle = part(3, top, 7, 50)
    last = part(4, middle, 50, 90)
    memory.add(last, middle)
    memory.add(middle, top)
    assert [ghost.serial for ghost in memory.follow(top, PROMPT, 7)] == [3, 4]
    assert len(memory) == 0


def test_a_prompt_may_leave_an_edge_in_its_second_half() -> None:
    memory, root = Ghosts(), Root(1, ExtraKey(), 0)
    memory.add(part(2, root, 0, 90), root)
    other = PROMPT[: 70 * 4] + token_bytes([5, 5, 5])
    assert [ghost.serial for ghost in memory.follow(root, other, 0)] == [2]


def test_another_prompt_finds_nothing() -> None:
    memory, root = Ghosts(), Root(1, ExtraKey(), 0)
    memory.add(part(2, root, 0, 90), root)
    assert not list(memory.follow(root, PROMPT[:40] + token_bytes([5] * 80), 0))
    assert not list(memory.follow(Root(3, ExtraKey(cache_salt="a"), 0), PROMPT, 0))
    assert [ghost.serial for ghost in memory.follow(Root(4, ExtraKey(), 9), PROMPT, 0)] == [2], "a root that came again"


def test_the_oldest_is_forgotten() -> None:
    memory, root = Ghosts(), Root(1, ExtraKey(), 0)
    first = part(2, root, 0, 90)
    memory.add(first, root)
    for serial in range(3, 3 + ghosts.MAX_GHOSTS):
        memory.add(part(serial, first, 90, 100), Node(serial, None, b"", None, 0, 0))
    assert len(memory) == ghosts.MAX_GHOSTS
    assert not list(memory.follow(root, PROMPT, 0))
