"""Runners of a split model: rank 0 says what it is about to compute and what it sampled, the others hold their own plan against it.

The digests are compared at every step that computes, before it does: ranks whose batches differ would wait for each other in a sum
for ever, or worse, end it.
"""

from radixserve.batch import ForwardBatch
from radixserve.cache.prefix_cache import PrefixCache
from radixserve.engine.counting_runner import CountedStep
from radixserve.engine.ranks.leader import Leader
from radixserve.engine.ranks.link import Link, PeerLostError, Plan, Tokens
from radixserve.engine.runner import PendingStep, Runner, StepResult
from radixserve.errors import RankError
from radixserve.scheduler.digest import Digest


class LeadingRunner:
    """Rank 0's, around the one that computes its part and samples. Raises RankError naming the rank that has ended."""

    def __init__(self, inner: Runner, leader: Leader, cache: PrefixCache) -> None:
        self.inner = inner
        self._leader = leader
        self._cache = cache
        self._digest = Digest()
        self._num_steps = 0

    def launch(self, batch: ForwardBatch) -> PendingStep:
        self._num_steps += 1
        self._leader.tell(Plan(self._digest.add(batch, self._cache)))
        try:
            return _ToldStep(self.inner.launch(batch), self._leader)
        except PeerLostError as error:
            raise self._leader.blame(PeerLostError(f"step {self._num_steps} can't add up what the ranks have: {error}")) from error


class _ToldStep:
    """A step whose tokens all ranks are told."""

    def __init__(self, pending: PendingStep, leader: Leader) -> None:
        self._pending = pending
        self._leader = leader

    def result(self) -> StepResult:
        result = self._pending.result()
        self._leader.tell(Tokens(result.token_ids))
        return result


class FollowingRunner:
    """Another rank's, around the one that computes its part and samples nothing. Raises RankError where the ranks differ."""

    def __init__(self, inner: Runner, link: Link, rank: int, cache: PrefixCache) -> None:
        self.inner = inner
        self._link = link
        self._rank = rank
        self._cache = cache
        self._digest = Digest()
        self._num_steps = 0

    def launch(self, batch: ForwardBatch) -> CountedStep:
        plan = self._link.receive()
        if not isinstance(plan, Plan):
            raise self.differs(f"rank 0 computes nothing, and rank {self._rank} {len(batch.input_ids)} tokens")
        own = self._digest.add(batch, self._cache)
        if plan.digest != own:
            raise self.differs(f"the digest of rank 0 is {plan.digest}, of rank {self._rank} {own}")
        self.inner.launch(batch).result()
        tokens = self._link.receive()
        assert isinstance(tokens, Tokens)
        self._num_steps += 1
        return CountedStep(tokens.token_ids, [None] * len(tokens.token_ids), [[] for _ in batch.scored])

    def differs(self, how: str) -> RankError:
        """The error that names the first step in which the ranks decided otherwise."""
        return RankError(f"the ranks differ since step {self._num_steps + 1}: {how}")
