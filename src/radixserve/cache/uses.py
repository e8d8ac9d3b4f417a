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
    returned: int = 0
    """Ticks until the next use; 0 while there is none."""

    def again(self, time: int) -> "Use":
        """The next use of the same run. Marks this one as returned, if it isn't: a part of the run may have been used before."""
        if not self.returned:
            self.returned = time - self.time
        return Use(time, self.turn, self.count + 1)
