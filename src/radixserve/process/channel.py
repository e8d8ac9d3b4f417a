"""The wire between the HTTP process and the engine process: two one-way zmq sockets over ipc, lists of msgpack structs.

The sockets live in a temporary folder that only this user can enter. Nothing is ever dropped and no send blocks: the queues have
no limit, and what can pile up in them is bounded by the requests that are open. Order is kept in each direction.
"""

import asyncio
import contextlib
import os
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import zmq

from radixserve.ipc import EngineInput, EngineOutput, Sync

LINGER_MS = 1000
"""How long a closing end waits until its last messages are out."""

CONNECT_MS = 1000
"""How long an engine that has already spoken may take to be reachable too; it takes none of it."""

_encode = msgspec.msgpack.Encoder().encode
_decode_inputs = msgspec.msgpack.Decoder(list[EngineInput | Sync]).decode
_decode_outputs = msgspec.msgpack.Decoder(list[EngineOutput]).decode


def make_folder() -> Path:
    """A new private folder for the sockets of one channel; its maker removes it."""
    return Path(tempfile.mkdtemp(prefix="radixserve-"))


class EngineEnd:
    """The engine's end; blocking."""

    def __init__(self, folder: Path) -> None:
        self._context = zmq.Context()
        self._inputs = _connect(self._context.socket(zmq.PULL), folder / "inputs")
        self._outputs = _connect(self._context.socket(zmq.PUSH), folder / "outputs")
        self._wakened, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        self._waker_lock = threading.Lock()
        self._closed = False
        self._poller = zmq.Poller()
        self._poller.register(self._inputs, zmq.POLLIN)
        self._poller.register(self._wakened, zmq.POLLIN)

    def wake(self) -> None:
        """Lets a waiting `receive` return, or else the next one that would wait. The one method for other threads."""
        with self._waker_lock, contextlib.suppress(BlockingIOError):  # full: it is going to wake as it is
            if not self._closed:
                os.write(self._waker, b"!")

    def receive(self, *, wait: bool) -> list[EngineInput | Sync]:
        """Everything that has arrived, in order; when `wait`, at least one message, or none after a `wake`."""
        messages: list[EngineInput | Sync] = []
        if wait and self._wakened in dict(self._poller.poll()):
            os.read(self._wakened, 1024)
        while self._inputs.poll(0):
            messages.extend(_decode_inputs(self._inputs.recv()))
        return messages

    def send(self, messages: list[EngineOutput]) -> None:
        """Queues messages; returns at once."""
        self._outputs.send(_encode(messages))

    def close(self) -> None:
        """Waits up to LINGER_MS until what was sent is out."""
        self._inputs.close(linger=0)
        self._outputs.close(linger=LINGER_MS)
        self._context.term()
        with self._waker_lock:
            self._closed = True
            os.close(self._wakened)
            os.close(self._waker)


class ClientEnd:
    """The client's end, on an event loop. Made before the engine's, which connects to it."""

    def __init__(self, folder: Path) -> None:
        self._context = zmq.Context()
        self._inputs = _bind(self._context.socket(zmq.PUSH), folder / "inputs")
        self._outputs = _bind(self._context.socket(zmq.PULL), folder / "outputs")

    def wait_connected(self) -> None:
        """Waits until the engine's end can be sent to; call it once, when there is an engine."""
        self._inputs.poll(CONNECT_MS, zmq.POLLOUT)

    def send(self, messages: Sequence[EngineInput | Sync]) -> None:
        """Queues messages, which the engine sees in one step; returns at once. Nothing happens when the engine is gone."""
        with contextlib.suppress(zmq.Again):  # without a limit on the queue, only a missing peer can be in the way
            self._inputs.send(_encode(messages), zmq.NOBLOCK)

    async def receive(self) -> list[EngineOutput]:
        """The next list that the engine sent."""
        # By hand, since zmq's own asyncio sockets take 100 us longer for a message.
        while True:
            with contextlib.suppress(zmq.Again):
                return _decode_outputs(self._outputs.recv(zmq.NOBLOCK))
            await self._news()

    async def drain(self, timeout_ms: int) -> list[EngineOutput]:
        """What is still to be read from an engine that has ended; `timeout_ms` is how long to wait for each list."""
        messages: list[EngineOutput] = []
        with contextlib.suppress(TimeoutError):
            while True:
                messages.extend(await asyncio.wait_for(self.receive(), timeout_ms / 1000))
        return messages

    async def _news(self) -> None:
        """Waits until something may have arrived. The descriptor tells it once, and only after a receive that found nothing."""
        loop, told = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._outputs.FD, told.set)
        try:
            await told.wait()
        finally:
            loop.remove_reader(self._outputs.FD)

    def close(self) -> None:
        """Drops what is not sent yet."""
        self._inputs.close(linger=0)
        self._outputs.close(linger=0)
        self._context.term()


def _connect(socket: Any, path: Path) -> Any:
    _configure(socket).connect(f"ipc://{path}")
    return socket


def _bind(socket: Any, path: Path) -> Any:
    _configure(socket).bind(f"ipc://{path}")
    return socket


def _configure(socket: Any) -> Any:
    socket.set_hwm(0)
    socket.linger = 0  # or the garbage collection of an end that was never closed waits for ever
    return socket
