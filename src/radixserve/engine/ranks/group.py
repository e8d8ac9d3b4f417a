"""Sums and gathers over the ranks of one model by torch.distributed: gloo between CPUs, nccl between CUDA devices."""

import os
import re
import socket
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import GatherOptions, Store, TCPStore

from radixserve.engine.ranks import link
from radixserve.engine.ranks.link import PeerLostError

HOST = "127.0.0.1"


class Group:
    """The `Collectives` of one rank; `join` before the first use. No global state: several can live in one process.

    On CPUs a sum is made in the order of the ranks, whatever the tensor's size, so no bit of it depends on what else is summed.
    """

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
            raise PeerLostError(_reason(error)) from error

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """See `Collectives`. Raises PeerLostError when a rank has ended."""
        if self._device.type == "cuda" or self.size <= 2:
            self._wait(lambda: self._group.allreduce([tensor]))
            return tensor
        parts = [torch.empty_like(tensor) for _ in range(self.size)]  # with three or more, gloo's order depends on the place
        self._wait(lambda: self._group.allgather([parts], [tensor]))
        tensor.copy_(parts[0])
        for part in parts[1:]:
            tensor += part
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
            raise PeerLostError(_reason(error)) from error


def make_store() -> TCPStore:
    """Where the ranks of one group meet; lives in rank 0's process, at a `port` of the loopback address alone."""
    listener = socket.create_server((HOST, 0))  # by itself a store listens on all of the machine's addresses
    port = listener.getsockname()[1]
    return TCPStore(HOST, port, is_master=True, wait_for_workers=False, timeout=_patience(), master_listen_fd=listener.detach())


def find_store(port: int) -> TCPStore:
    """The store that another process made."""
    return TCPStore(HOST, port, is_master=False, timeout=_patience())


def _reason(error: RuntimeError) -> str:
    """Without the place in gloo's source that it begins with."""
    return re.sub(r"^\[\S*\] ", "", str(error))


def _patience() -> timedelta:
    return timedelta(seconds=link.PATIENCE_S)


def _gloo(store: Store, rank: int, size: int) -> Any:
    gloo: Any = torch.distributed.ProcessGroupGloo
    options = gloo._Options()
    options._devices = [gloo.create_device(hostname=HOST)]
    options._timeout = _patience()
    return gloo(store, rank, size, options)


def _nccl(store: Store, rank: int, size: int) -> Any:
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")  # all ranks are on this machine; else they meet where others can connect
    nccl: Any = torch.distributed.ProcessGroupNCCL
    options = nccl.Options()
    options._timeout = _patience()
    return nccl(store, rank, size, options)
