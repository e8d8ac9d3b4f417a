"""What a server says of its limits when it starts."""

import socket

from radixserve.ipc import EngineInfo
from radixserve.limits import Limits
from radixserve.server.lifecycle import describe


def test_a_pool_smaller_than_the_context_is_the_stated_limit() -> None:
    """Case: a prompt above the pool but under the context limit waited for ever, and nothing had said so."""
    limits = Limits(vocab_size=100, max_context_len=1024, num_slots=256, page_size=1)
    info = EngineInfo("m", "float32", "cpu", limits, kv_bytes=0, num_threads=1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        lines = describe(info, "m", listener, [""])
        of_two = describe(info, "m", listener, ["east", "west"])
    assert "at most 257 tokens, of a context of 1024" in lines
    assert "replicas" not in lines
    assert "2 replicas, each of these: east, west" in of_two
    assert limits.max_output(256) == 1
    assert limits.max_output(257) == 0
