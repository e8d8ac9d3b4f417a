"""Weights that all ranks load or none does."""

from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from radixserve.config import EngineConfig
from radixserve.engine.adapter_reader import AdapterReader, NoWeights
from radixserve.engine.ranks.leader import Leader
from radixserve.engine.ranks.link import Link, make_link
from radixserve.engine.ranks.weights import FollowingAdapters, FollowingWeights, LeadingAdapters, LeadingWeights
from radixserve.errors import ModelError, RankError
from radixserve.ipc import LoadAdapter


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


class Part:
    """One rank's part of a model's weights, as it reads them from the files at hand."""

    reads_files = True

    def __init__(self, fault: Exception | None = None) -> None:
        self._fault = fault
        self.put_paths: list[str] = []

    def read(self, model: str) -> tuple[str, str]:
        if self._fault is not None:
            raise self._fault
        return model, f"weights in {model}"

    def put(self, path: str, weights: str) -> None:
        assert weights == f"weights in {path}"
        self.put_paths.append(path)


def swap(first: Part, second: Part, path: Path) -> None:
    """What both ranks do in the step in which rank 0 has found a model. Raises what rank 0 does."""
    leader = Leader(EngineConfig())
    end, theirs = make_link()
    leader.links.append(end)
    follower = Link(Connection(theirs.detach()))
    leading, following = LeadingWeights(first, leader), FollowingWeights(second, follower)
    found = leading.read(str(path))
    assert found == (str(path), None), "rank 0 reads in the step, with the others"
    with ThreadPoolExecutor() as pool:
        ours, other = pool.submit(leading.put, *found), pool.submit(following.put, found[0], None)
        other.exception()
        try:
            ours.result()
        finally:
            leader.close()
            follower.close()


def test_all_ranks_swap_the_weights_that_rank_0_found(tiny_model_dir: Path) -> None:
    ranks = Part(), Part()
    swap(*ranks, tiny_model_dir)
    assert [rank.put_paths for rank in ranks] == [[str(tiny_model_dir)]] * 2


def test_no_rank_swaps_weights_that_none_can_read(tiny_model_dir: Path) -> None:
    ranks = Part(ModelError("broken")), Part(ModelError("broken"))
    with pytest.raises(ModelError, match="broken"):
        swap(*ranks, tiny_model_dir)
    assert [rank.put_paths for rank in ranks] == [[], []]


def test_ranks_that_disagree_about_weights_end_the_engine(tiny_model_dir: Path) -> None:
    with pytest.raises(RankError, match="rank 1 and rank 0 disagree about the weights in"):
        swap(Part(), Part(ModelError("broken")), tiny_model_dir)
