"""Whatever a rank waits for, it waits for so long and no longer, and says who was late, with what."""

import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from radixserve.config import EngineConfig
from radixserve.engine.ranks import link
from radixserve.engine.ranks.group import Group, find_store, make_store
from radixserve.engine.ranks.leader import Leader
from radixserve.engine.ranks.link import PeerLostError, Step, make_link
from radixserve.errors import RankError
from radixserve.ipc import GenerateRequest
from radixserve.sampling_params import SamplingParams

LONG = GenerateRequest("long", bytes(4_000_000), SamplingParams())


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "PATIENCE_S", 1)


@pytest.fixture
def leader() -> Iterator[Leader]:
    """Of a rank 1 that neither reads nor writes, whose process never ends."""
    leader = Leader(EngineConfig())
    end, theirs = make_link()
    leader.links.append(end)
    leader._processes.append(subprocess.Popen(["sleep", "1000"], stdin=subprocess.PIPE))
    with theirs:
        yield leader
        leader.close()


def test_a_rank_that_does_not_answer(leader: Leader) -> None:
    with pytest.raises(RankError, match="rank 1: it did not say what came of its work within 1 s"):
        leader.updated()


def test_a_stopped_rank_that_does_not_hear(leader: Leader) -> None:
    leader._processes[0].send_signal(signal.SIGSTOP)
    with pytest.raises(RankError, match="rank 1 is stopped by a signal: rank 1: it did not hear"):
        leader.tell(Step([LONG]))


@pytest.mark.parametrize("size", [2, 3])
def test_a_rank_that_does_not_come_to_a_sum(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(link, "PATIENCE_S", 4)  # on a busy machine ranks need some time to meet
    store = make_store()
    groups = [Group(rank, size, torch.device("cpu")) for rank in range(size)]

    def run(group: Group) -> str:
        group.join(find_store(store.port))
        if group.rank == 0:
            return "late"
        with pytest.raises(PeerLostError) as caught:
            group.sum(torch.zeros(1))
        return str(caught.value)

    with ThreadPoolExecutor(size) as pool:
        late, *others = pool.map(run, groups)
    assert late == "late"
    assert all("Timed out waiting 4000ms" in other for other in others)
