"""Uses of prefixes, for policies that learn: which request used a node last, and whether another came back for it."""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Use:
    """One request's use of a run of nodes: those it added, or those of its path that were last used together."""

    time: int
    """The clock at the request's `acquire`."""
    turn: int
    """1 for what starts a prompt, one more than the turn of what it continues otherwise: the n-th turn of a chat."""
    count: int
    """`turn`, and the times that the run was used again since it was added."""
    returned: bool = False
    """Whether the run, or a part of it, was used again."""
