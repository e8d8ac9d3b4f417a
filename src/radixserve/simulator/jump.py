"""Jumps over steps in which nothing can change but lengths: the same requests decode, and the first prompt gets its next chunks.

What a jump leaves behind is what the steps would have left, but for the numbers of slots, which decide nothing. It ends before the
step in which something can happen: an answer or a prompt ends, the pool must evict, a waiting request could be admitted, or another
arrives. That step and every other that isn't certain to be like this are left to the engine.
"""

from collections.abc import Callable
from dataclasses import dataclass

from radixserve.engine.engine import Engine
from radixserve.req import Req
from radixserve.scheduler.scheduler import Scheduler
from radixserve.simulator.cost import StepShape


@dataclass
class Steady:
    """Steps that only lengthen: each computes one token for every one of `decodes`, and `chunk` tokens of `prefill`."""

    decodes: list[Req]
    prefill: Req | None
    chunk: int
    num_steps: int

    def shape(self, step: int) -> StepShape:
        """Of the step of that number, from 0; `take` must not have been called."""
        num_decodes, chunk = len(self.decodes), self.chunk
        context = sum(req.computed_len for req in self.decodes) + (step + 1) * num_decodes
        pairs = context
        if self.prefill is not None:
            end = self.prefill.computed_len + (step + 1) * chunk
            context += end
            pairs += chunk * end - chunk * (chunk - 1) // 2
        return StepShape(num_decodes + chunk, pairs, context)

    def take(self, engine: Engine, num_steps: int, tokens: Callable[[Req, int], list[int]]) -> None:
        """Makes the first `num_steps` of them. `tokens` gives a request's next so many output tokens."""
        cache = engine.cache
        for req in self.decodes:
            assert req.lease is not None
            if req.seq_len + num_steps - 1 > req.lease.num_slots:
                cache.extend(req.lease, req.seq_len + num_steps - 1)
            req.output_ids += tokens(req, num_steps)
            req.computed_len += num_steps
        if self.prefill is not None:
            assert self.prefill.lease is not None
            for _ in range(num_steps):
                self.prefill.computed_len += self.chunk
                cache.publish(self.prefill.lease, self.prefill.tokens(self.prefill.computed_len), self.prefill.computed_len)
        engine.totals.num_steps += num_steps
        engine.totals.computed_tokens += num_steps * (len(self.decodes) + self.chunk)
        engine.totals.generated_tokens += num_steps * len(self.decodes)


def find_steady(scheduler: Scheduler, left: Callable[[Req], int]) -> Steady | None:
    """The coming steps that only lengthen; None when the next may not. `left`: tokens that a request will still be given."""
    decodes = [req for req in scheduler.running if req.computed_len >= req.prompt_len]
    if any((req.extend_len == 1) != (req.computed_len >= req.prompt_len) for req in scheduler.running):
        return None  # the last token of a prompt, or what a preemption left to compute again
    num_steps = min((left(req) - 1 for req in decodes), default=1 << 30)
    prefill, chunk = None, 0
    if len(decodes) < len(scheduler.running):
        prefill = min((req for req in scheduler.running if req.computed_len < req.prompt_len), key=Scheduler.importance)
        chunk = scheduler.max_batch_tokens - len(decodes)
        if chunk < 1 or prefill.output_ids or prefill.lease is None or prefill.lease.source is not None:
            return None
        num_steps = min(num_steps, -(-prefill.extend_len // chunk) - 1)
    if num_steps < 1 or len(decodes) > scheduler.max_batch_tokens or not scheduler.running:
        return None
    num_steps = min(num_steps, _steps_without_eviction(scheduler, decodes, num_steps))
    if scheduler.waiting and scheduler.has_place:
        num_steps = min(num_steps, _steps_without_admission(scheduler, decodes, prefill))
    return Steady(decodes, prefill, chunk, num_steps) if num_steps > 0 else None


def _steps_without_eviction(scheduler: Scheduler, decodes: list[Req], num_steps: int) -> int:
    """At most `num_steps` that the free slots are enough for."""
    page_size, free = scheduler.cache.page_size, scheduler.cache.free_size

    def needed(steps: int) -> int:
        missing = (req.seq_len + steps - 1 - req.lease.num_slots for req in decodes if req.lease is not None)
        return sum(-(-count // page_size) * page_size for count in missing if count > 0)

    low, high = 0, num_steps
    while low < high:
        middle = (low + high + 1) // 2
        if needed(middle) <= free:
            low = middle
        else:
            high = middle - 1
    return low


def _steps_without_admission(scheduler: Scheduler, decodes: list[Req], prefill: Req | None) -> int:
    """For how many steps the queue stays as it is.

    The order of the queue follows from what the tree holds for it. A prompt's chunks change that for those alone that were matched
    as far as the prompt's own path; where there are such, nothing is certain. With the order the same, the first in it is refused
    as long as there is no room for it; with pages, what is kept for answers shrinks faster than the pool.
    """
    budget = scheduler.max_batch_tokens - len(decodes)
    missing = _missing_room(scheduler, budget // 2 if prefill is not None else budget, whole=prefill is not None)
    if prefill is not None and prefill.lease is not None and scheduler.queue.has_match_at(prefill.lease.node):
        return 0
    if missing is None:
        return 1 << 30
    return -(-missing // max(len(decodes), 1))


def _missing_room(scheduler: Scheduler, budget: int, *, whole: bool) -> int | None:
    """By how many slots the pool is too short for the request that `plan` would admit next with such a budget, 0 if it isn't.

    None if it would admit none, however much room there were. `whole`: as for a prompt that takes one step. Admits nothing.
    """
    scheduler.queue.begin_pass(scheduler.running)
    candidate = scheduler.queue.first()
    if budget <= 0 or candidate is None or (whole and candidate.extend_len > budget):
        return None
    reserved = sum(map(scheduler.still_to_generate, [*scheduler.running, candidate.req]))
    return max(scheduler.shortage(candidate, reserved), 0) if scheduler.running else 0
