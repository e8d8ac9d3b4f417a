"""Responses that clients may continue or ask for by id, in memory, within a bound: the oldest go first."""

from dataclasses import dataclass

import msgspec

from radixserve.server.errors import HttpError
from radixserve.server.responses.items import Item


@dataclass(frozen=True)
class StoredResponse:
    """`body`: the reply as JSON. `items`: the conversation up to and with the answer. `size`: in bytes, at most."""

    body: bytes
    items: list[Item]
    size: int


class ResponseStore:
    """Holds up to `max_bytes`. Conversations that share turns are counted each in full."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._stored: dict[str, StoredResponse] = {}
        self._size = 0

    def put(self, name: str, body: bytes, items: list[Item]) -> None:
        """Keeps a response, and forgets the oldest ones where the bound asks for it."""
        stored = StoredResponse(body, items, len(body) + len(msgspec.json.encode(items)))
        self._stored[name] = stored
        self._size += stored.size
        while self._size > self._max_bytes:
            self._drop(next(iter(self._stored)))

    def get(self, name: str) -> StoredResponse:
        """Raises HttpError 404 when it isn't there."""
        if name not in self._stored:
            raise HttpError(
                404,
                f"there is no response {name[:80]!r} here: it was never stored, was deleted, or was forgotten, since the newest "
                f"{self._max_bytes} bytes are kept; send the whole conversation, or raise --response-store-bytes",
                code="response_not_found",
            )
        return self._stored[name]

    def delete(self, name: str) -> None:
        """Raises HttpError 404 when it isn't there."""
        self.get(name)
        self._drop(name)

    def _drop(self, name: str) -> None:
        self._size -= self._stored.pop(name).size
