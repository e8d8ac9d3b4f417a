"""Rank 0's side of a split model: it starts the other processes, tells them what every step begins with, and notices their end.

Their standard input is held open by this process alone: it never closes before this process ends, and then they end.
"""

import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TypeVar

import psutil

from radixserve.config import EngineConfig
from radixserve.engine.ranks.group import Group, make_store
from radixserve.engine.ranks.link import Begin, Fault, Frame, Join, Link, Loaded, PeerLostError, Ready, Step, Updated, make_link
from radixserve.errors import ConfigError, RankError
from radixserve.ipc import EngineInput, ExplainRequest, RankInfo, ReportPages, TopRequest, UpdateWeightsRequest, WatchRequest

LAST_WORDS_S = 0.5
"""How long the others have to say why, when one is gone: they notice it together."""

UNDECIDING = (ExplainRequest, ReportPages, TopRequest, UpdateWeightsRequest, WatchRequest)
"""Messages that change nothing yet: rank 0 alone takes them."""


Heard = TypeVar("Heard", Loaded, Ready, Updated)


def _ignore() -> None:
    pass


class Alarm:
    """Rings once a process has ended, from a thread that waits for it. `on_ring` is called then."""

    def __init__(self) -> None:
        self.has_rung = False
        self.on_ring: Callable[[], None] = _ignore

    def watch(self, process: "subprocess.Popen[bytes]") -> None:
        threading.Thread(target=self._wait, args=(process,), daemon=True, name="ranks").start()

    def _wait(self, process: "subprocess.Popen[bytes]") -> None:
        process.wait()
        self.has_rung = True
        self.on_ring()


class Leader:
    """The other ranks, as rank 0 sees them. Every method raises RankError naming the rank that has ended, and why."""

    def __init__(self, config: EngineConfig) -> None:
        """Starts `config.tensor_parallel` - 1 processes; each loads its part of the model."""
        self.alarm = Alarm()
        self.links: list[Link] = []
        """To rank 1, 2, ..."""
        self._processes: list[subprocess.Popen[bytes]] = []
        self._end = weakref.finalize(self, _end, self._processes)  # when a program ends too, while the alarm's threads still run
        for rank in range(1, config.tensor_parallel):
            self._start(config, rank)

    def agree(self, num_slots: int) -> int:
        """Waits until all have loaded; the slots that all of them have memory for. Raises ConfigError for one that can't start."""
        return min([num_slots, *(frame.num_slots for frame in self._hear(Loaded))])

    def gather(self, group: Group, num_slots: int) -> list[RankInfo]:
        """Lets all make their pools and meet in `group`, rank 0 included. Raises ConfigError as `agree`."""
        self._store = make_store()
        self.tell(Join(num_slots, self._store.port))
        try:
            group.join(self._store)
        except PeerLostError as error:
            raise self.blame(error) from error
        return [frame.info for frame in self._hear(Ready)]

    def begin_step(self, messages: Sequence[EngineInput]) -> None:
        """Tells all what a step begins with."""
        if self.alarm.has_rung:
            raise self.blame(PeerLostError("a rank has ended"))
        self.tell(Step([message for message in messages if not isinstance(message, UNDECIDING)]))

    def tell(self, frame: Frame) -> None:
        """Sends it to all."""
        for rank, link in enumerate(self.links, 1):
            try:
                link.send(frame)
            except PeerLostError as error:
                raise self.blame(PeerLostError(f"rank {rank}: {error}")) from error

    def updated(self) -> list[str | None]:
        """Waits until all have tried to load other weights or an adapter; what came of it, rank by rank from 1 on."""
        return [frame.error for frame in self._hear(Updated)]

    def blame(self, lost: PeerLostError) -> RankError | ConfigError:
        """Who ended first, as far as can be told: one that said why, or was killed, or is stopped by a signal, else what is known.

        Others end after the one that all wait for, so theirs is the last word.
        """
        for rank, link in enumerate(self.links, 1):
            if (fault := link.last_words(LAST_WORDS_S)) is not None:
                return _as_error(rank, fault)
        deadline = time.monotonic() + LAST_WORDS_S
        while time.monotonic() < deadline and not any(process.poll() for process in self._processes):
            time.sleep(0.01)
        for rank, process in enumerate(self._processes, 1):
            if (code := process.poll()) is not None and code < 0:
                return RankError(f"rank {rank} was ended by signal {-code}")
        for rank, process in enumerate(self._processes, 1):
            if _is_stopped(process):
                return RankError(f"rank {rank} is stopped by a signal: {lost}")
        for rank, process in enumerate(self._processes, 1):
            if (code := process.poll()) is not None:
                return RankError(f"rank {rank} ended with exit code {code}")
        return lost

    def close(self) -> None:
        """Ends all; the second time nothing happens."""
        self.alarm.on_ring = _ignore
        self._end()
        for link in self.links:
            link.close()
        self.links = []

    def _hear(self, kind: type[Heard]) -> list[Heard]:
        """The next frame of each rank."""
        frames: list[Heard] = []
        for rank, link in enumerate(self.links, 1):
            try:
                frame = link.receive()
            except PeerLostError as error:
                raise self.blame(PeerLostError(f"rank {rank}: {error}")) from error
            if isinstance(frame, Fault):
                raise _as_error(rank, frame)
            assert isinstance(frame, kind), frame
            frames.append(frame)
        return frames

    def _start(self, config: EngineConfig, rank: int) -> None:
        link, theirs = make_link()
        command = [sys.executable, "-m", "radixserve.engine.ranks.follow", str(theirs.fileno()), str(rank)]
        with theirs:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # a Ctrl-C at the terminal is for the first process to hear
            )
        self._processes.append(process)
        self.links.append(link)
        self.alarm.watch(process)
        link.try_to_send(Begin(config))  # if it is gone already, whoever hears from it next finds out why


def _end(processes: "list[subprocess.Popen[bytes]]") -> None:
    for process in processes:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()
    processes.clear()


def _is_stopped(process: "subprocess.Popen[bytes]") -> bool:
    try:
        return psutil.Process(process.pid).status() == psutil.STATUS_STOPPED
    except psutil.NoSuchProcess:
        return False


def _as_error(rank: int, fault: Fault) -> RankError | ConfigError:
    return ConfigError(f"rank {rank} can't start: {fault.reason}") if fault.config else RankError(f"rank {rank}: {fault.reason}")
