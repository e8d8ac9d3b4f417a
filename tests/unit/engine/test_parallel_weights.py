"""Weights that all ranks load or none does."""

from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

import pytest

from radixserve.config import EngineConfig
from radixserve.engine.adapter_reader import AdapterReader, NoWeights
from radixserve.engine.ranks.leader import Leader
from radixserve.engine.ranks.link import Link, make_link
from radixserve.engine.ranks.weights import FollowingAdapters, LeadingAdapters
from radixserve.errors import ModelError, RankError
from radixserve.messages import LoadAdapter


class Files(NoWeights):
    """The adapter files that one rank sees."""

    def __init__(self, fault: Exception | None) -> None:
        self._fault = fault

    def read(self, directory: str) -> tuple[None, str]:
        if self._fault is not None:
            raise self._fault
        return None, "whole"


def read(first: Exception | None, second: Exception | None) -> str:
    """What rank 0 reads where the two ranks have such faults; the message is applied by both, as in a step."""
    leader = Leader(EngineConfig())
    end, theirs = make_link()
    leader.links.append(end)
    follower = Link(Connection(theirs.detach()))
    message = LoadAdapter("", "a", "somewhere")
    readers = AdapterReader(LeadingAdapters(Files(first), leader)), AdapterReader(FollowingAdapters(Files(second), follower))
    assert not any(reader.begin(message) for reader in readers), "another rank would read in another step"
    with ThreadPoolExecutor() as pool:
        ours, other = (pool.submit(reader.result, message) for reader in readers)
        other.exception()
        try:
            return ours.result()[1]
        finally:
            leader.close()
            follower.close()


def test_all_ranks_read() -> None:
    assert read(None, None) == "whole"


@pytest.mark.parametrize("fault", [ModelError("broken"), OSError("broken")])
def test_no_rank_can(fault: Exception) -> None:
    with pytest.raises(ModelError, match="broken"):
        read(fault, fault)


@pytest.mark.parametrize("fault", [ModelError("broken"), OSError("broken")])
def test_where_one_rank_can_and_another_can_t_the_engine_ends(fault: Exception) -> None:
    for faults in ((fault, None), (None, fault)):
        with pytest.raises(RankError, match="rank 1 and rank 0 disagree about the adapter in somewhere: broken"):
            read(*faults)
