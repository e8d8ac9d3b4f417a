"""Token ids as bytes, and the namespaces that they belong to: what all rooms say to each other about tokens.

The tree compares edges as bytes, native-endian int32, TOKEN_BYTES a token; the model and the API work with arrays of ids.
"""

from typing import NamedTuple

import numpy as np

TOKEN_BYTES = 4


class ExtraKey(NamedTuple):
    """What separates namespaces of the tree: two requests share KV only when all fields are equal."""

    adapter: str | None = None
    cache_salt: str | None = None
    adapter_load: int = 0
    """Number of the load that brought the adapter, from 1 on: a name may come again with other weights. 0: the base."""


SHARED = ExtraKey()
"""The namespace of requests that name neither adapter nor salt."""


def token_bytes(token_ids: "np.ndarray | list[int]") -> bytes:
    """Token ids as bytes."""
    return np.asarray(token_ids, dtype=np.int32).tobytes()


def as_ids(tokens: "bytes | bytearray | memoryview") -> np.ndarray:
    """Bytes as token ids, int32 [n]: a view."""
    return np.frombuffer(tokens, dtype=np.int32)


def token_len(tokens: "bytes | bytearray | memoryview") -> int:
    """How many tokens some bytes are."""
    return len(tokens) // TOKEN_BYTES
