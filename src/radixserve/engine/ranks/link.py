"""What rank 0 and another rank say to each other, over a socket between the two processes: msgpack structs, in order.

Rank 0 says what to begin with, then of each step its messages, its plan and the sampled tokens. The other says that it is ready,
and then nothing but what came of new weights and adapters, or why it can't go on. Tensors go another way (`group`).
"""

import contextlib
import socket
import struct
from multiprocessing.connection import Connection

import msgspec

from radixserve.config import EngineConfig
from radixserve.errors import RankError
from radixserve.ipc import EngineInput, RankInfo


class Begin(msgspec.Struct, frozen=True, tag=True):
    """To a new process: what engine it is of."""

    config: EngineConfig


class Loaded(msgspec.Struct, frozen=True, tag=True):
    """The model is loaded, and there is memory for so many slots."""

    num_slots: int


class Join(msgspec.Struct, frozen=True, tag=True):
    """All have loaded: make the pool, and meet at this port of the machine."""

    num_slots: int
    port: int


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The rank waits for its first step."""

    info: RankInfo


class Step(msgspec.Struct, frozen=True, tag=True):
    """A step begins with these messages."""

    messages: list[EngineInput]


class Plan(msgspec.Struct, frozen=True, tag=True):
    """Rank 0 computes a batch, and this is the digest of all that was decided until now."""

    digest: str


class Tokens(msgspec.Struct, frozen=True, tag=True):
    """What rank 0 sampled from the batch."""

    token_ids: list[int]


class Updated(msgspec.Struct, frozen=True, tag=True):
    """What came of an order to load other weights or an adapter: None, or why it can't be."""

    error: str | None


class Fault(msgspec.Struct, frozen=True, tag=True):
    """The sender ends, and why. `config`: because it can't start as configured."""

    reason: str
    config: bool = False


Frame = Begin | Loaded | Join | Ready | Step | Plan | Tokens | Updated | Fault

PATIENCE_S = 600
"""How long rank 0 waits for a rank that runs to hear what it is told or to say what is due, and each for the others in a sum."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Frame).decode


class PeerLostError(RankError):
    """The process at the other end, or one that takes part in a sum, is gone. Who it was is known to rank 0 alone."""


def make_link() -> "tuple[Link, socket.socket]":
    """Rank 0's end, which waits PATIENCE_S at most, and the socket of the other, which waits for as long as nothing happens."""
    ours, theirs = socket.socketpair()
    for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
        ours.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", PATIENCE_S, 0))
    return Link(Connection(ours.detach())), theirs


class Link:
    """One end."""

    def __init__(self, connection: "Connection[bytes, bytes]") -> None:
        self._connection = connection

    def send(self, frame: Frame) -> None:
        """Raises PeerLostError."""
        try:
            self._connection.send_bytes(_encode(frame))
        except BlockingIOError as error:
            raise PeerLostError(f"it did not hear what it was told within {PATIENCE_S} s") from error
        except OSError as error:
            raise PeerLostError(str(error)) from error

    def try_to_send(self, frame: Frame) -> None:
        """`send` to somebody who may be gone."""
        with contextlib.suppress(PeerLostError):
            self.send(frame)

    def receive(self) -> Frame:
        """The next frame; waits for it. Raises PeerLostError."""
        try:
            frame: Frame = _decode(self._connection.recv_bytes())
        except BlockingIOError as error:
            raise PeerLostError(f"it did not say what came of its work within {PATIENCE_S} s") from error
        except (OSError, EOFError) as error:
            raise PeerLostError(str(error)) from error
        return frame

    def last_words(self, timeout_s: float) -> Fault | None:
        """Why the other ends, if it said so, or says so in time."""
        with contextlib.suppress(PeerLostError, OSError):
            while self._connection.poll(timeout_s):
                if isinstance(frame := self.receive(), Fault):
                    return frame
        return None

    def close(self) -> None:
        self._connection.close()
