"""The publisher speaks as subscribers of SGLang and vLLM expect."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import zmq

from radixserve.errors import ConfigError
from radixserve.observe.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch
from radixserve.observe.kv_publisher import END, KVPublisher

WAIT_MS = 5000


@pytest.fixture
def publisher() -> Iterator[KVPublisher]:
    made = KVPublisher("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", "kv")
    yield made
    made.close()


@pytest.fixture
def context() -> Iterator[Any]:
    with zmq.Context() as made:
        yield made


def test_frames_are_topic_number_and_batch(publisher: KVPublisher, context: Any) -> None:
    sent = EventBatch(1.5, [BlockStored([7, 8], None, [1, 2], 1), BlockRemoved([8]), AllBlocksCleared()])
    with context.socket(zmq.SUB) as subscriber:
        subscriber.linger = 0
        subscriber.connect(publisher.endpoint)
        subscriber.subscribe("kv")
        num_sent = 0
        while not subscriber.poll(50):  # what is published before the subscription has arrived is lost
            publisher.publish(sent)
            num_sent += 1
        topic, number, batch = subscriber.recv_multipart()
    assert 0 <= int.from_bytes(number, "big") < num_sent
    assert topic == b"kv"
    assert msgspec.msgpack.decode(batch) == [
        1.5,
        [["BlockStored", [7, 8], None, [1, 2], 1, None], ["BlockRemoved", [8]], ["AllBlocksCleared"]],
        0,
    ]


def test_missed_batches_are_sent_again(publisher: KVPublisher, context: Any) -> None:
    for number in range(4):
        publisher.publish(EventBatch(float(number), [AllBlocksCleared()]))
    answers: list[list[bytes]] = []
    with context.socket(zmq.DEALER) as asker:
        asker.linger = 0
        asker.connect(publisher.replay_endpoint)
        while len(answers) < 3:  # the publisher's thread may not have sent them all yet
            asker.send_multipart([b"", (2).to_bytes(8, "big")])
            answers = []
            while not answers or answers[-1][1] != END:
                assert asker.poll(WAIT_MS)
                answers.append(asker.recv_multipart())
    assert [int.from_bytes(number, "big") for _, number, _ in answers[:-1]] == [2, 3]
    assert msgspec.msgpack.decode(answers[0][2])[0] == 2.0
    assert answers[-1] == [b"", END, b""]


def test_an_address_that_is_taken_is_refused(publisher: KVPublisher) -> None:
    with pytest.raises(ConfigError, match=r"--kv-events-endpoint is 'tcp://127.0.0.1:"):
        KVPublisher(publisher.endpoint)
