"""The tree's changes in the form in which SGLang and vLLM publish theirs, so that routers and viewers made for those can follow.

A block is one page of the tree. Its hash names all tokens up to its end and the namespace, so that equal pages in different places
differ and a split changes nothing. A subscriber that adds what is stored and takes out what is removed holds exactly the pages of
the tree after every batch; a parent is always stored before its children and removed after them.
"""

import time

import msgspec

from radixserve.cache.events import CacheEvent, Evicted, Flushed, Inserted
from radixserve.cache.fingerprints import Fingerprints, TreeFingerprints, last_fingerprint
from radixserve.tokens import as_ids


class BlockStored(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Pages that follow each other; `token_ids` of all of them, `block_size` a page. `parent_block_hash`: of the page before.

    `lora_id`: number of the load that brought the adapter; None for the base.
    """

    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None = None


class BlockRemoved(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Pages that are in the tree no more, the last first."""

    block_hashes: list[int]


class AllBlocksCleared(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Nothing is in the tree."""


KVEvent = BlockStored | BlockRemoved | AllBlocksCleared


class EventBatch(msgspec.Struct, frozen=True, array_like=True):
    """What happened in one step. `ts`: Unix time in seconds."""

    ts: float
    events: list[KVEvent]
    data_parallel_rank: int = 0


class KVEvents:
    """Collects the events of one tree until they are taken."""

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._events: list[KVEvent] = []

    def add(self, event: CacheEvent, tree: TreeFingerprints, fingerprints: Fingerprints) -> None:
        """Takes the next event, which `tree` has followed and found these `fingerprints` along its edge."""
        match event:
            case Inserted():
                parent = last_fingerprint(tree.before(event.serial))
                token_ids = as_ids(event.tokens).tolist()
                hashes = self._hashes(fingerprints)
                above = None if parent is None else _block_hash(parent)
                lora_id = event.extra_key.adapter_load or None
                self._events.append(BlockStored(hashes, above, token_ids, self._page_size, lora_id))
            case Evicted():
                self._events.append(BlockRemoved(self._hashes(fingerprints)[::-1]))
            case Flushed():
                self._events.append(AllBlocksCleared())

    def _hashes(self, fingerprints: Fingerprints) -> list[int]:
        return [_block_hash(found) for found in fingerprints[self._page_size - 1 :: self._page_size].tolist()]

    def take(self) -> EventBatch | None:
        """What came since the last call; None if nothing did."""
        if not self._events:
            return None
        events, self._events = self._events, []
        return EventBatch(time.time(), events)


def _block_hash(fingerprint: int) -> int:
    """63 bits, which fit a signed and an unsigned number alike."""
    return fingerprint >> 1
