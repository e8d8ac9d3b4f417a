"""Publishes KV events over ZMQ as SGLang's and vLLM's publishers do: frames, sequence numbers and replay alike.

A batch goes out as the frames topic, sequence number (8 bytes, big-endian, from 0) and msgpack. A subscriber that misses a number
asks the replay socket for it: from a DEALER socket it sends an empty frame and the number, and gets an empty frame, a number and a
batch for each batch from there on that is still kept, then the same with END and nothing. A slow subscriber loses batches and never
slows the engine.
"""

import threading
from collections import deque

import msgspec
import zmq

from radixserve.errors import ConfigError
from radixserve.observe.kv_events import EventBatch

NUM_KEPT = 10_000
"""Batches kept for replay."""
HIGH_WATER = 100_000
"""Batches that wait for a slow subscriber; more are lost to it."""
END = (-1).to_bytes(8, "big", signed=True)
LINGER_MS = 100


class KVPublisher:
    """Binds `endpoint`, and `replay_endpoint` if there is one; a thread of its own owns the sockets. `publish` never waits.

    Raises ConfigError if an address can't be had.
    """

    def __init__(self, endpoint: str, replay_endpoint: str | None = None, topic: str = "") -> None:
        self._context = zmq.Context()
        self._topic = topic.encode()
        self._encode = msgspec.msgpack.Encoder().encode
        self._kept: deque[tuple[bytes, bytes]] = deque(maxlen=NUM_KEPT)
        self._num_batches = 0
        self._batches = self._context.socket(zmq.PAIR)
        self._batches.set_hwm(0)
        self._batches.bind("inproc://batches")
        self._inbox = self._context.socket(zmq.PAIR)
        self._inbox.set_hwm(0)
        self._inbox.connect("inproc://batches")
        self._pub = self._context.socket(zmq.PUB)
        self._pub.set_hwm(HIGH_WATER)
        self.endpoint = self._bind(self._pub, "--kv-events-endpoint", endpoint)
        self._replay = self._context.socket(zmq.ROUTER)
        self.replay_endpoint = replay_endpoint and self._bind(self._replay, "--kv-events-replay-endpoint", replay_endpoint)
        self._thread = threading.Thread(target=self._run, name="kv-events", daemon=True)
        self._thread.start()

    @property
    def endpoints(self) -> dict[str, str | None]:
        """The addresses as they are bound, by the names of their settings."""
        return {"kv_events_endpoint": self.endpoint, "kv_events_replay_endpoint": self.replay_endpoint}

    def publish(self, batch: EventBatch) -> None:
        """Queues a batch."""
        self._batches.send(self._encode(batch))

    def close(self) -> None:
        """Sends what is queued and gives the addresses back."""
        self._batches.send(b"")
        self._thread.join()
        self._batches.close()
        self._context.term()

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._inbox, zmq.POLLIN)
        poller.register(self._replay, zmq.POLLIN)
        ended = False
        while not ended:
            ready = dict(poller.poll())
            if self._inbox in ready:
                batch = self._inbox.recv()
                ended = not batch
                if batch:
                    self._send(batch)
            if self._replay in ready:
                self._send_again(self._replay.recv_multipart())
        for socket in (self._inbox, self._pub, self._replay):
            socket.close(linger=LINGER_MS)

    def _send(self, batch: bytes) -> None:
        number = self._num_batches.to_bytes(8, "big")
        self._num_batches += 1
        self._kept.append((number, batch))
        self._pub.send_multipart([self._topic, number, batch])

    def _send_again(self, request: list[bytes]) -> None:
        """Answers a request of three frames (client, empty, number); others are no requests, and dropped."""
        if len(request) != 3:
            return
        client, _, first = request
        for number, batch in [kept for kept in self._kept if kept[0] >= first]:
            self._replay.send_multipart([client, b"", number, batch])
        self._replay.send_multipart([client, b"", END, b""])

    def _bind(self, socket: zmq.Socket[bytes], flag: str, endpoint: str) -> str:
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise ConfigError(f"{flag} is {endpoint!r}: {error}; give a free address such as tcp://*:5557") from error
        return str(socket.getsockopt_string(zmq.LAST_ENDPOINT))
