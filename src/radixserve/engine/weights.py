"""Other weights on their way into the engine: found, downloaded and read by a thread of their own, so that no step waits for them.

What came of it is a `WeightsRead`, a message of the engine in order with all others. The weights are swapped when it is applied.
"""

from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Protocol

from radixserve import heap
from radixserve.errors import ModelError, RankError
from radixserve.ipc import UpdateWeightsRequest, WeightsRead
from radixserve.model_files import read_model
from radixserve.models.decoder import AnyDecoder
from radixserve.models.registry import resolve


class ModelWeights(Protocol):
    """Where the weights go: a decoder, or nothing where only decisions matter."""

    reads_files: bool
    """Whether `read` takes its time and is to be called by a thread of its own."""

    def read(self, model: str) -> tuple[str, Any]:
        """Finds a model, and reads it in a form that `put` takes; in any thread. Returns where it is too. Raises ModelError."""

    def put(self, path: str, weights: Any) -> None:
        """Steps compute with these from now on. Raises ModelError and changes nothing where they can't."""


class NoModel:
    """Of an engine without a model: takes all weights."""

    reads_files = False

    def read(self, model: str) -> tuple[str, Any]:
        return model, None

    def put(self, path: str, weights: Any) -> None:
        pass


class DecoderWeights:
    """Those of a decoder."""

    reads_files = True

    def __init__(self, decoder: AnyDecoder) -> None:
        self._decoder = decoder

    def read(self, model: str) -> tuple[str, Any]:
        path = resolve(model)
        return str(path), self._decoder.read_weights(Path(path))

    def put(self, path: str, weights: Any) -> None:
        self._decoder.put_weights(weights)
        heap.trim()


def _ignore() -> None:
    pass


class WeightsReader:
    """Reads for one engine, whose loop calls everything, one model at a time; `on_read` is called by the thread."""

    def __init__(self, weights: ModelWeights) -> None:
        self.weights = weights
        self.on_read: Callable[[], None] = _ignore
        self.model: str | None = None
        """What is being read, or waits for its message to be applied."""
        self._read: Any = None
        self._finished: SimpleQueue[WeightsRead] = SimpleQueue()

    @property
    def has_finished(self) -> bool:
        """Whether a model is read whose message was not taken yet."""
        return not self._finished.empty()

    def begin(self, message: UpdateWeightsRequest) -> None:
        """Begins to read: `take_finished` will tell what came of it. Nothing else may be on its way."""
        assert self.model is None
        self.model = message.model
        # A daemon: a hub that doesn't answer must not keep a process that is to end.
        Thread(target=self._run, args=(message,), name="weights", daemon=True).start()

    def take_finished(self) -> list[WeightsRead]:
        """What came of the reading, if it ended since the last call."""
        try:
            return [self._finished.get_nowait()]
        except Empty:
            return []

    def result(self) -> Any:
        """What was read, as `ModelWeights` has it, and makes way for another; None where nothing was."""
        read, self._read, self.model = self._read, None, None
        return read

    def _run(self, message: UpdateWeightsRequest) -> None:
        path, error = "", None
        try:
            path, self._read = read_model(message.model, lambda: self.weights.read(message.model))
        except (ModelError, RankError) as fault:
            error = str(fault)
        self._finished.put(WeightsRead(message.rid, message.model, path, error))
        self.on_read()
