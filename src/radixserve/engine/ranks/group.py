"""Sums and gathers over the ranks of one model by torch.distributed: gloo between CPUs, nccl between CUDA devices."""

from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import GatherOptions, Store, TCPStore

from radixserve.engine.ranks.link import PeerLostError

HOST = "127.0.0.1"
TIMEOUT = timedelta(minutes=30)
"""Of one sum. A rank that is slow only slows; one that has ended is noticed at once, by its closed connections."""
MEETING_TIMEOUT = timedelta(minutes=1)
"""Of the meeting at start, when all have loaded already."""


class Group:
    """The `Collectives` of one rank; `join` before the first use. No global state: several can live in one process."""

    def __init__(self, rank: int, size: int, device: torch.device) -> None:
        self.rank = rank
        self.size = size
        self._device = device
        self._group: Any = None

    def join(self, store: Store) -> None:
        """Meets the other ranks at a store that all reach; returns when all are there. Raises PeerLostError."""
        try:
            make = _nccl if self._device.type == "cuda" else _gloo
            self._group = make(store, self.rank, self.size)
            self.sum(torch.zeros(1, device=self._device))
        except RuntimeError as error:
            raise PeerLostError(str(error)) from error

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """See `Collectives`. Raises PeerLostError when a rank has ended."""
        self._wait(lambda: self._group.allreduce([tensor]))
        return tensor

    def gather(self, tensor: torch.Tensor, widths: list[int]) -> torch.Tensor:
        """See `Collectives`. Raises PeerLostError when a rank has ended."""
        sent = torch.nn.functional.pad(tensor, (0, max(widths) - tensor.shape[1])).contiguous()
        parts = [torch.empty_like(sent) for _ in widths] if self.rank == 0 else []
        options = GatherOptions()
        options.rootRank = 0
        self._wait(lambda: self._group.gather([parts] if parts else [], [sent], options))
        return torch.cat([part[:, :width] for part, width in zip(parts, widths, strict=True)], dim=1) if parts else tensor

    def _wait(self, begin: Any) -> None:
        try:
            begin().wait()
        except RuntimeError as error:
            raise PeerLostError(str(error)) from error


def make_store() -> TCPStore:
    """Where the ranks of one group meet; lives in rank 0's process, at a `port` of this machine's own address."""
    return TCPStore(HOST, 0, is_master=True, wait_for_workers=False, timeout=MEETING_TIMEOUT)


def find_store(port: int) -> TCPStore:
    """The store that another process made."""
    return TCPStore(HOST, port, is_master=False, timeout=MEETING_TIMEOUT)


def _gloo(store: Store, rank: int, size: int) -> Any:
    gloo: Any = torch.distributed.ProcessGroupGloo
    options = gloo._Options()
    options._devices = [gloo.create_device(hostname=HOST)]
    options._timeout = TIMEOUT
    return gloo(store, rank, size, options)


def _nccl(store: Store, rank: int, size: int) -> Any:
    nccl: Any = torch.distributed.ProcessGroupNCCL
    options = nccl.Options()
    options._timeout = TIMEOUT
    return nccl(store, rank, size, options)
