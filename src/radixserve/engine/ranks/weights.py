"""Weights and adapters that all ranks load or none does: each tries, in the step of the order, and rank 0 hears what came of it."""

from collections.abc import Callable
from typing import Any, TypeVar

from radixserve.engine.adapter_reader import AdapterWeights
from radixserve.engine.ranks.leader import Leader
from radixserve.engine.ranks.link import Link, Updated
from radixserve.errors import RankError

Loaded = TypeVar("Loaded")


def load_as_leader(leader: Leader, what: str, load: Callable[[], Loaded]) -> Loaded:
    """What `load` gives on rank 0. Raises what it raises where no rank can load `what`, RankError where only some can."""
    refusal: Exception | None = None
    try:
        loaded = load()
    except Exception as error:  # whatever it is, the others have an answer on its way
        refusal = error
    for rank, theirs in enumerate(leader.updated(), 1):
        if (theirs is None) != (refusal is None):
            raise RankError(f"rank {rank} and rank 0 disagree about {what}: {theirs or refusal}")
    if refusal is not None:
        raise refusal
    return loaded


def load_as_follower(link: Link, load: Callable[[], Loaded]) -> Loaded:
    """What `load` gives on another rank; what came of it goes to rank 0."""
    try:
        loaded = load()
    except Exception as error:
        link.send(Updated(str(error)))
        raise
    link.send(Updated(None))
    return loaded


class LeadingAdapters:
    """Rank 0's part of the adapters, around the weights themselves."""

    reads_files = False
    """All ranks read in one step."""

    def __init__(self, inner: AdapterWeights, leader: Leader) -> None:
        self._leader = leader
        self._inner = inner
        self.put = inner.put
        self.remove = inner.remove

    def read(self, directory: str) -> tuple[Any, str]:
        """See `AdapterWeights`. Raises RankError where only some ranks can."""
        return load_as_leader(self._leader, f"the adapter in {directory}", lambda: self._inner.read(directory))


class FollowingAdapters:
    """Another rank's part of them."""

    reads_files = False

    def __init__(self, inner: AdapterWeights, link: Link) -> None:
        self._link = link
        self._inner = inner
        self.put = inner.put
        self.remove = inner.remove

    def read(self, directory: str) -> tuple[Any, str]:
        """See `AdapterWeights`."""
        return load_as_follower(self._link, lambda: self._inner.read(directory))
