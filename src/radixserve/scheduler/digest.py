"""One number for everything that was decided so far: two engines that have the same digest after a step did the same until then."""

from hashlib import blake2b

import numpy as np

from radixserve.batch import ForwardBatch
from radixserve.cache.prefix_cache import PrefixCache


class Digest:
    """A running hash over the steps of one engine: who computed how much in which rows and slots, and how much was evicted.

    Victims show in the slots, since what they free is given out again in order.
    """

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=8)

    def add(self, batch: ForwardBatch, cache: PrefixCache) -> str:
        """Takes in a step after its commit; returns the digest so far, as 16 hexadecimal digits."""
        arrivals = [req.arrival for req in batch.reqs]
        counts = [*arrivals, *batch.extend_lens, *batch.rows, cache.clock, cache.num_evicted, cache.num_nodes, cache.free_size]
        self._hash.update(np.array(counts, dtype=np.int64).tobytes())
        self._hash.update(batch.out_slots.numpy().tobytes())
        return self._hash.hexdigest()
