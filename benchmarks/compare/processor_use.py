"""Who uses the processor: the server under test, this client, or anything else.

A figure is worth little when something else computes beside it: on two cores, one busy process can double every time. So a run
waits until the machine is quiet, and says afterwards how many cores anything else used.
"""

import asyncio
import time
from dataclasses import dataclass

import psutil

QUIET_CORES = 0.15
"""Below it a machine is quiet: what a desktop or an idle server uses."""
WINDOW_S = 0.5


@dataclass(frozen=True)
class Load:
    """Cores in use, on average over a time."""

    client: float
    foreign: float
    """By anything but this process and the server; by the server too where its process is not known."""


class LoadMeter:
    """Measures from its making on."""

    def __init__(self, server_pid: int | None) -> None:
        """`server_pid`: main process of the server; its children count with it."""
        self._server_pid = server_pid
        self._start_s = time.perf_counter()
        self._start = self._cpu_s()

    def read(self) -> Load:
        """The load since the making. Means nothing when the server has ended meanwhile."""
        duration_s = time.perf_counter() - self._start_s
        machine, server, client = ((now - then) / duration_s for now, then in zip(self._cpu_s(), self._start, strict=True))
        return Load(client, max(0.0, machine - server - client))

    def _cpu_s(self) -> tuple[float, float, float]:
        """CPU seconds so far: the machine's, the server's, this process's."""
        return _machine_s(), 0.0 if self._server_pid is None else tree_s(self._server_pid), time.process_time()


async def wait_until_quiet(server_pid: int | None, limit_s: float) -> bool:
    """Waits for a window in which nothing else computes. False: there was none within `limit_s`."""
    deadline_s = time.perf_counter() + limit_s
    while time.perf_counter() < deadline_s:
        meter = LoadMeter(server_pid)
        await asyncio.sleep(WINDOW_S)
        if meter.read().foreign < QUIET_CORES:
            return True
    return False


def _machine_s() -> float:
    """Time of all cores that was not idle; what a hypervisor took away counts too."""
    times = psutil.cpu_times()._asdict()
    unused = ("idle", "iowait", "guest", "guest_nice")  # a guest's time is in the user's already
    return float(sum(value for name, value in times.items() if name not in unused))


def tree_s(pid: int) -> float:
    """CPU seconds of a process and all its descendants, those that ended included; 0 when it has ended itself."""
    try:
        root = psutil.Process(pid)
        processes = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:  # its requests fail, which is told; the runs of other servers go on
        return 0.0
    total = 0.0
    for process in processes:
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:  # ended since it was listed: its parent has its time
            continue
    return total
