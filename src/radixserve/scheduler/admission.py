"""In which order waiting requests are admitted.

An order gives each candidate a key by what the tree holds for it now; the least is admitted first. Whatever the order, requests
that were passed over too often come first, in order of arrival, and a higher priority comes before a lower one.

`prefix` and `tree` are the two cache-aware orders of SGLang (Zheng et al. 2024, "SGLang: Efficient Execution of Structured Language
Model Programs", section 3): longest shared prefix first, and depth first through the tree. Here `prefix` counts what is left to
compute, so that a short question isn't held up by a long one that shares more.
"""

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass

from radixserve.cache.followed import FollowedMatch
from radixserve.cache.node import Node
from radixserve.cache.prefix_cache import PrefixCache
from radixserve.errors import ConfigError
from radixserve.req import Req

Key = tuple[int, ...]


class Candidate(FollowedMatch):
    """A waiting request and what the tree holds for it.

    `key` is what may be reused: all of its tokens but the last, which must be computed to give logits, or fewer (`reusable_len`).
    """

    __slots__ = ("entry", "req", "turn")

    def __init__(self, req: Req) -> None:
        super().__init__(req.tokens(req.reusable_len), req.extra_key)
        self.req = req
        self.entry: Key | None = None
        """What it is sorted by; None while it can't be admitted."""
        self.turn = 0
        """Its number in an order that looks at all candidates at once."""

    def __lt__(self, other: "Candidate") -> bool:
        """For heaps: of two entries that are equal else, of one request before and after a preemption, one is stale."""
        return False

    @property
    def extend_len(self) -> int:
        """Tokens to compute if it were admitted now."""
        return self.req.seq_len - self.cached_len


@dataclass(frozen=True)
class Order:
    """`key` sorts candidates. `number`, if there is one, is called with all of them at the start of a pass and sets their turns."""

    key: Callable[[Candidate], Key]
    number: Callable[[Collection[Candidate], PrefixCache], None] | None = None


def fcfs(candidate: Candidate) -> Key:
    """First come, first served."""
    return (candidate.req.arrival,)


def prefix(candidate: Candidate) -> Key:
    """Fewest tokens to compute first; ties to the longest cached prefix."""
    return candidate.extend_len, -candidate.cached_len, candidate.req.arrival


def tree(candidate: Candidate) -> Key:
    """Depth first through the tree, as `number_by_tree` went."""
    return candidate.turn, candidate.req.arrival


def number_by_tree(candidates: Collection[Candidate], cache: PrefixCache) -> None:
    """Depth first, the branch with most waiting requests first; within a node, fewest tokens to compute. O(candidates)."""
    ending_at: dict[Node, list[Candidate]] = defaultdict(list)
    for c in candidates:
        node = c.place.node
        ending_at[node if isinstance(node, Node) else cache.tree.find_root(node)].append(c)
    roots, children = _paths_to(ending_at)
    weight: dict[Node, int] = {}
    for node in _post_order(roots, children):
        weight[node] = len(ending_at.get(node, ())) + sum(weight[child] for child in children[node])

    def heaviest_first(node: Node) -> tuple[int, int]:
        return -weight[node], node.serial

    for siblings in children.values():
        siblings.sort(key=heaviest_first)
    turn = 0
    for node in _post_order(sorted(roots, key=heaviest_first), children):
        for c in sorted(ending_at.get(node, ()), key=lambda c: (c.extend_len, c.req.arrival)):
            c.turn = turn
            turn += 1


def _paths_to(nodes: dict[Node, list[Candidate]]) -> tuple[list[Node], dict[Node, list[Node]]]:
    """The part of the tree above some nodes: its roots, and the children of every node in it."""
    roots: list[Node] = []
    children: dict[Node, list[Node]] = {}
    for node in nodes:
        if node in children:
            continue
        children[node] = []
        while node.parent is not None:
            seen = node.parent in children
            children.setdefault(node.parent, []).append(node)
            node = node.parent
            if seen:
                break
        else:
            roots.append(node)
    return roots, children


def _post_order(roots: list[Node], children: dict[Node, list[Node]]) -> list[Node]:
    """Every node after its children, siblings in the order of their lists."""
    ordered: list[Node] = []
    stack = list(roots)
    while stack:
        node = stack.pop()
        ordered.append(node)
        stack.extend(children[node])
    # Popped last-sibling first, each node before its children: the reverse of a post-order over the siblings as listed.
    return ordered[::-1]


ORDERS = {"prefix": Order(prefix), "tree": Order(tree, number_by_tree), "fcfs": Order(fcfs)}


def find_order(name: str) -> Order:
    """Raises ConfigError for an unknown name."""
    try:
        return ORDERS[name]
    except KeyError:
        raise ConfigError(f"--order is {name!r}: must be one of {', '.join(ORDERS)}") from None
