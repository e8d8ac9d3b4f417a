"""Which requests run, and what each computes in a step. It only plans: no model, no clock, no text.

A step mixes decodes and chunks of prompts within a token budget. Beside a prompt that takes several steps, up to half of the budget
goes to new requests that need only this one. A request that is admitted gets slots for all tokens it knows; decoding asks for one
more at a time, or for as many as its grammar forced. When the pool can't give them, the request that matters least is preempted:
what it computed is published, so that it resumes from the cache.

Invariants: a running request has a lease, a row of the slot table, and slots for all its tokens when they are planned; a waiting
one has nothing. No more requests run than a step computes tokens, so that each can have one.
"""

from radixserve.batch import ForwardBatch
from radixserve.cache.prefix_cache import PrefixCache
from radixserve.cache.slot_table import SlotTable
from radixserve.errors import OutOfSlotsError
from radixserve.ipc import FinishReason
from radixserve.req import Req
from radixserve.scheduler.admission import Candidate, Order
from radixserve.scheduler.events import Admitted, Admitting, Leaving, SchedulerEvent, SchedulerListener
from radixserve.scheduler.layout import Layout
from radixserve.scheduler.queue import Queue


class Scheduler:
    """What runs and what waits in one engine, over its cache."""

    def __init__(
        self,
        cache: PrefixCache,
        slot_table: SlotTable,
        *,
        order: Order,
        max_batch_tokens: int,
        max_passed_over: int,
        decode_reserve: int,
    ) -> None:
        self.cache = cache
        self.slot_table = slot_table
        self._layout = Layout(slot_table.table)
        self.running: list[Req] = []
        self.num_preemptions = 0
        self.listeners: list[SchedulerListener] = []
        """Called with every event, in this order."""
        self.queue = Queue(cache, order, max_passed_over)
        self.max_batch_tokens = max_batch_tokens
        self._decode_reserve = decode_reserve

    @property
    def waiting(self) -> dict[str, Candidate]:
        """By request id, in the order in which they began to wait."""
        return self.queue.candidates

    @property
    def has_place(self) -> bool:
        """Whether one request more may run, if the pool has room for it."""
        return self.slot_table.num_free_rows > 0 and len(self.running) < self.max_batch_tokens

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.running)

    @staticmethod
    def importance(req: Req) -> tuple[int, int]:
        """Sorts running requests: the last is preempted first."""
        return -req.priority, req.arrival

    def add(self, req: Req) -> None:
        """Puts a request into the queue. It must fit the pool when alone: `Limits.check` has seen to that."""
        self.queue.add(req)

    def plan(self) -> ForwardBatch | None:
        """The next step, or None when nothing waits or runs. Admits and preempts; moves no KV. The last one's batch is spent."""
        self.running.sort(key=self.importance)
        self._make_room()
        chunks = _Chunks(self.max_batch_tokens)
        decodes: list[Req] = []
        prefills: list[Req] = []
        for req in self.running:
            (decodes if req.extend_len == 1 or req.computed_len >= req.prompt_len else prefills).append(req)
        for number, req in enumerate(decodes, 1):
            chunks.add(req, keep=len(decodes) - number)
        if prefills:
            self._admit(chunks, chunks.budget // 2, whole=True)
        for req in prefills:
            chunks.add(req)
        self._admit(chunks, chunks.budget)
        return self._layout.lay_out(chunks.planned) if chunks.planned else None

    def commit(self, batch: ForwardBatch) -> None:
        """The step has been computed: its tokens count as computed, and finished chunks of prompts are published."""
        for req, extend_len in zip(batch.reqs, batch.extend_lens, strict=True):
            assert req.lease is not None
            if req.lease.copy is not None:
                self.cache.finish_copy(req.lease)
            in_prompt = req.computed_len < req.prompt_len
            req.computed_len += extend_len
            if in_prompt:
                self._publish(req)

    def finish(self, req: Req, reason: FinishReason) -> None:
        """Ends a running or waiting request: publishes what it computed and gives back everything it held."""
        req.finish_reason = reason
        if not self.queue.remove(req.rid):
            self._leave(req)

    # Admission

    def _admit(self, chunks: "_Chunks", budget: int, *, whole: bool = False) -> None:
        """Takes requests from the queue while there are tokens to compute, rows and slots for them.

        `whole`: only such that can be computed to their end within the budget.
        """
        if not self.waiting or budget <= 0 or not self.has_place:
            return
        self.queue.begin_pass(self.running)
        reserved = sum(map(self.still_to_generate, self.running))
        while budget > 0 and self.has_place and (candidate := self.queue.first()) is not None:
            req = candidate.req
            reserved += self.still_to_generate(req)
            if (whole and candidate.extend_len > budget) or not self._start(candidate, reserved):
                break
            budget -= chunks.add(req)

    def _start(self, candidate: Candidate, reserved: int) -> bool:
        """Moves one request from waiting to running, if the pool has room for it and `reserved` slots more."""
        req, cache = candidate.req, self.cache
        if self.running and self.shortage(candidate, reserved) > 0:  # alone it fits, whatever it has to evict
            return False
        self._tell(Admitting, req)
        req.lease = cache.acquire(candidate.key, req.extra_key, priority=req.priority)
        cache.extend(req.lease, req.seq_len)
        req.computed_len = req.lease.cached_len
        if req.cached_len is None:
            req.cached_len = req.computed_len
        req.row = self.slot_table.take_row()
        self.slot_table.write(req.row, 0, req.lease.slots)
        self.queue.admit(candidate)
        self.running.append(req)
        self._tell(Admitted, req)
        return True

    def shortage(self, candidate: Candidate, reserved: int) -> int:
        """Slots that it needs, and `reserved` more, beyond what is free or could be evicted. Below 0 there is room left."""
        page_size = self.cache.page_size
        match = self.cache.match(candidate.key, candidate.req.extra_key)  # again: locks may have changed, if not the tree
        needed = -(-candidate.req.seq_len // page_size) * page_size - match.path_len
        copied_from = page_size if match.cached_len > match.path_len else 0
        available = self.cache.free_size + self.cache.evictable_size - match.evictable_len - copied_from
        return needed + reserved - available

    def still_to_generate(self, req: Req) -> int:
        """Slots to keep for the rest of its answer; the last token needs none."""
        return max(min(req.max_tokens - len(req.output_ids) - 1, self._decode_reserve), 0)

    # Running requests

    def _make_room(self) -> None:
        """Gives decoding requests the slots of their next tokens: in one go while the pool has free ones for all."""
        short = [req for req in self.running if req.lease is not None and req.seq_len > req.lease.num_slots]
        if not short:
            return
        leases = [req.lease for req in short if req.lease is not None]
        page_size = self.cache.page_size
        one_each = all(req.seq_len <= lease.num_slots + page_size for req, lease in zip(short, leases, strict=True))
        if one_each and len(short) * page_size <= self.cache.free_size:
            starts = [lease.num_slots for lease in leases]
            self.slot_table.write_pages([req.row for req in short], starts, self.cache.extend_by_page(leases))
        else:
            for req in short:
                self._make_room_for(req)

    def _make_room_for(self, req: Req) -> None:
        """Gives a request the slots of its next tokens, preempting the least important until there are enough, itself at last."""
        while req.lease is not None:
            held = req.lease.num_slots
            try:
                self.cache.extend(req.lease, req.seq_len)
            except OutOfSlotsError:
                self._preempt(self.running[-1])
            else:
                self.slot_table.write(req.row, held, req.lease.slots[held:])
                return

    def _preempt(self, req: Req) -> None:
        """Sends a running request back to the queue. Its arrival number keeps its place there."""
        self._leave(req)
        req.computed_len = 0
        self.num_preemptions += 1
        self.add(req)

    def _leave(self, req: Req) -> None:
        assert req.lease is not None
        self._publish(req)
        self._tell(Leaving, req)
        self.cache.release(req.lease)
        req.lease = None
        self.slot_table.give_back(req.row)
        req.row = -1
        self.running.remove(req)

    def _publish(self, req: Req) -> None:
        assert req.lease is not None
        moved = self.cache.publish(req.lease, req.tokens(req.computed_len), req.computed_len)
        if moved is not None:
            start, end = moved
            self.slot_table.write(req.row, start, req.lease.slots[start:end])

    def _tell(self, event: type[SchedulerEvent], req: Req) -> None:
        for listener in self.listeners:
            listener(event(req))


class _Chunks:
    """The step so far: which request computes how many tokens, and how many more it may have."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.planned: list[tuple[Req, int]] = []

    def add(self, req: Req, *, keep: int = 0) -> int:
        """Plans as much of a request as the budget allows when it keeps some for others; returns how much that is."""
        extend_len = min(req.extend_len, self.budget - keep)
        if extend_len > 0:
            self.planned.append((req, extend_len))
            self.budget -= extend_len
        return extend_len
