"""Adapters on their way into the engine: read by a thread of its own, one after another, so that no step waits for a file.

A `LoadAdapter` whose adapter is read, or can't be, becomes a message of the engine, in order with all others.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from radixserve.ipc import LoadAdapter
from radixserve.model_files import read_model


class AdapterWeights(Protocol):
    """Where the weights go: a decoder's adapters, or nothing where only decisions matter."""

    reads_files: bool
    """Whether `read` takes its time and is to be called by a thread of its own, before the step of the message."""

    def read(self, directory: str) -> tuple[Any, str]:
        """Reads a PEFT directory, in any thread; returns it in a form that `put` takes, and in a few words. Raises ModelError."""

    def put(self, number: int, adapter: Any) -> None:
        """From now on steps may name this number."""

    def remove(self, number: int) -> None:
        """No later step names it."""


class NoWeights:
    """Of an engine without a model: takes every adapter."""

    reads_files = False

    def read(self, directory: str) -> tuple[Any, str]:
        return None, "not read"

    def put(self, number: int, adapter: Any) -> None:
        pass

    def remove(self, number: int) -> None:
        pass


def _ignore() -> None:
    pass


class AdapterReader:
    """Reads for one engine, whose loop calls everything; `on_read` is called by the thread."""

    def __init__(self, weights: AdapterWeights) -> None:
        self._weights = weights
        self.on_read: Callable[[], None] = _ignore
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="adapters")
        self._begun: dict[str, Future[tuple[Any, str]]] = {}
        """By id of the message."""
        self._finished: SimpleQueue[LoadAdapter] = SimpleQueue()

    @property
    def has_finished(self) -> bool:
        """Whether an adapter is read whose message was not taken yet."""
        return not self._finished.empty()

    def begin(self, message: LoadAdapter) -> bool:
        """Begins to read, or queues up for it: `take_finished` will give the message back. False where it may go on at once."""
        if not self._weights.reads_files:
            return False
        begun = self._begun[message.rid] = self._thread.submit(self._read, message.directory)
        begun.add_done_callback(lambda _: self._finish(message))
        return True

    def take_finished(self) -> list[LoadAdapter]:
        """The messages whose adapters were read, or could not be, since the last call."""
        messages: list[LoadAdapter] = []
        while True:
            try:
                messages.append(self._finished.get_nowait())
            except Empty:
                return messages

    def result(self, message: LoadAdapter) -> tuple[Any, str]:
        """What was read, as `AdapterWeights` has it. Raises ModelError where it could not be."""
        begun = self._begun.pop(message.rid, None)
        return begun.result() if begun is not None else self._read(message.directory)

    def _finish(self, message: LoadAdapter) -> None:
        self._finished.put(message)
        self.on_read()

    def _read(self, directory: str) -> tuple[Any, str]:
        return read_model(directory, lambda: self._weights.read(directory))
