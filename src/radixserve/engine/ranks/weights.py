"""Weights and adapters that all ranks load or none does: each tries, in the step of the order, and rank 0 hears what came of it."""

from collections.abc import Callable
from typing import Any, TypeVar

from radixserve.engine.adapter_reader import AdapterWeights
from radixserve.engine.ranks.leader import Leader
from radixserve.engine.ranks.link import Link, Updated
from radixserve.engine.weights import ModelWeights
from radixserve.errors import RankError
from radixserve.models.registry import resolve

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


class LeadingWeights:
    """Rank 0's part of a model's weights, around its decoder's: it finds the files while steps go on, and all read them in one."""

    reads_files = True

    def __init__(self, inner: ModelWeights, leader: Leader) -> None:
        self._inner = inner
        self._leader = leader

    def read(self, model: str) -> tuple[str, Any]:
        """See `ModelWeights`. Reads nothing yet."""
        return str(resolve(model)), None

    def put(self, path: str, weights: Any) -> None:
        """See `ModelWeights`. Raises RankError where only some ranks can."""
        load_as_leader(self._leader, f"the weights in {path}", lambda: self._inner.put(*self._inner.read(path)))


class FollowingWeights:
    """Another rank's part of them. Rank 0 finds the files."""

    reads_files = True

    def __init__(self, inner: ModelWeights, link: Link) -> None:
        self._inner = inner
        self._link = link

    def read(self, model: str) -> tuple[str, Any]:
        """See `ModelWeights`."""
        raise NotImplementedError

    def put(self, path: str, weights: Any) -> None:
        """See `ModelWeights`."""
        load_as_follower(self._link, lambda: self._inner.put(*self._inner.read(path)))
