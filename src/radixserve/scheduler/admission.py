"""In which order waiting requests are admitted.

An order sorts the candidates of one step by what the tree holds for them at that moment. Whatever the order, candidates that were
passed over too often come first, in order of arrival, and a higher priority comes before a lower one.

`prefix` and `tree` are the two cache-aware orders of SGLang (Zheng et al. 2024, "SGLang: Efficient Execution of Structured Language
Model Programs", section 3): longest shared prefix first, and depth first through the tree. Here `prefix` counts what is left to
compute, so that a short question isn't held up by a long one that shares more.
"""

from collections import Counter, defaultdict
from collections.abc import Callable

from radixserve.cache.prefix_cache import Match, PrefixCache
from radixserve.cache.radix_tree import Node
from radixserve.errors import ConfigError
from radixserve.req import Req

Order = Callable[[list["Candidate"]], list["Candidate"]]


class Candidate:
    """A waiting request and what the tree holds for it.

    `key` is what may be reused: all of its tokens but the last, which must be computed to give logits, or fewer (`reusable_len`).
    """

    __slots__ = ("extend_len", "key", "match", "req")

    def __init__(self, req: Req, cache: PrefixCache) -> None:
        self.req = req
        self.key = req.tokens(req.reusable_len)
        self._match(cache)

    def refresh(self, cache: PrefixCache) -> None:
        """Matches again, if the tree has changed where the last match ended."""
        if not cache.is_current(self.match):
            self._match(cache)

    def _match(self, cache: PrefixCache) -> None:
        self.match: Match = cache.match(self.key, self.req.extra_key)
        self.extend_len = self.req.seq_len - self.match.cached_len
        """Tokens to compute if it were admitted now."""


def fcfs(candidates: list[Candidate]) -> list[Candidate]:
    """First come, first served."""
    return sorted(candidates, key=lambda c: c.req.arrival)


def prefix(candidates: list[Candidate]) -> list[Candidate]:
    """Fewest tokens to compute first; ties to the cached prefix that most waiting and running requests share."""
    waiting_at = Counter(c.match.node for c in candidates)

    def key(c: Candidate) -> tuple[int, int, int]:
        node = c.match.node
        sharers = waiting_at[node] + node.lock_ref if c.match.cached_len else 0
        return c.extend_len, -sharers, c.req.arrival

    return sorted(candidates, key=key)


def tree(candidates: list[Candidate]) -> list[Candidate]:
    """Depth first through the tree, the branch with most waiting requests first; within a node, fewest tokens to compute."""
    ending_at: dict[Node, list[Candidate]] = defaultdict(list)
    for c in candidates:
        ending_at[c.match.node].append(c)
    roots, children = _paths_to(ending_at)
    post_order = _post_order(roots, children)
    weight: dict[Node, int] = {}
    for node in post_order:
        weight[node] = len(ending_at.get(node, ())) + sum(weight[child] for child in children[node])

    def heaviest_first(node: Node) -> tuple[int, int]:
        return -weight[node], node.serial

    for siblings in children.values():
        siblings.sort(key=heaviest_first)
    ordered = []
    for node in _post_order(sorted(roots, key=heaviest_first), children):
        ordered += sorted(ending_at.get(node, ()), key=lambda c: (c.extend_len, c.req.arrival))
    return ordered


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


ORDERS: dict[str, Order] = {"prefix": prefix, "tree": tree, "fcfs": fcfs}


def find_order(name: str) -> Order:
    """Raises ConfigError for an unknown name."""
    try:
        return ORDERS[name]
    except KeyError:
        raise ConfigError(f"--order is {name!r}: must be one of {', '.join(ORDERS)}") from None


def rank(candidates: list[Candidate], order: Order, max_passed_over: int) -> list[Candidate]:
    """The candidates in the order in which they are to be admitted."""
    starved = [c for c in candidates if c.req.passed_over >= max_passed_over]
    if starved:
        starved.sort(key=lambda c: (-c.req.priority, c.req.arrival))
        candidates = [c for c in candidates if c.req.passed_over < max_passed_over]
    ordered = order(candidates)
    ordered.sort(key=lambda c: -c.req.priority)
    return starved + ordered
