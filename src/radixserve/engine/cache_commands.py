"""What an operator does to an engine: flush, pin, unpin, evict, watch, load weights. Applied in order like every other message."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from radixserve.cache.node import Node
from radixserve.cache.pruning import Pruning
from radixserve.engine.adapters import NamedAdapters
from radixserve.engine.weights import WeightsReader
from radixserve.errors import InvalidRequestError, ModelError
from radixserve.ipc import (
    CacheCommand,
    CacheNews,
    CommandResult,
    EngineOutput,
    FlushRequest,
    RequestFailed,
    UpdateWeightsRequest,
    WeightsRead,
)
from radixserve.observe.news import seal
from radixserve.observe.watch import Watch
from radixserve.req import Req
from radixserve.scheduler.pins import Pins
from radixserve.scheduler.scheduler import Scheduler


@dataclass(slots=True)
class _Sweep:
    """A flush of what is unused. `wanted`: tokens that were, when it began; no more are evicted, for later ones are new."""

    rid: str
    wanted: int
    evicted: int = 0


@dataclass(slots=True)
class _Evicting:
    """An eviction that was begun, and is answered when it is done."""

    rid: str
    pruning: Pruning

    def result(self) -> CommandResult:
        evicted, kept = self.pruning.evicted, self.pruning.kept
        why = f"; {kept} are in use or pinned and stay" if kept else ""
        return CommandResult(self.rid, f"evicted {evicted} tokens{why}", {"evicted_tokens": evicted, "kept_tokens": kept})


class CacheCommands:
    """CacheCommands on one engine. `reqs`: its open requests, kept up to date by it."""

    def __init__(
        self, scheduler: Scheduler, reqs: Mapping[str, Req], pins: Pins, adapters: NamedAdapters, weights: WeightsReader
    ) -> None:
        self._scheduler = scheduler
        self._reqs = reqs
        self._cache = scheduler.cache
        self.pins = pins
        self._adapters = adapters
        self._weights = weights
        self._watch: Watch | None = None
        self._sweeps: deque[_Sweep] = deque()
        self._evictions: deque[_Evicting] = deque()

    def carry_out(self, message: CacheCommand) -> list[EngineOutput]:
        """Does what the message says and reports it; or begins an eviction, which `tidy` goes on with."""
        try:
            match message.act:
                case "pin":
                    return [self._pin(message)]
                case "unpin":
                    return [self._unpin(message)]
                case "evict":
                    return self._evict(message)
        except InvalidRequestError as error:
            return [RequestFailed.of(message.rid, error)]

    def flush(self, message: FlushRequest) -> list[EngineOutput]:
        """Empties the tree, pins included, if no request is open; or begins to evict what is unused, which `tidy` goes on with."""
        if message.unused:
            self._sweeps.append(_Sweep(message.rid, self._cache.unused_size))
            return []
        if self._reqs:
            return [self._busy(message.rid, "flush the cache")]
        return [CommandResult(message.rid, self._empty_tree())]

    @property
    def is_tidy(self) -> bool:
        """Whether `tidy` would do nothing."""
        return self._cache.is_tidy and not self._sweeps

    def tidy(self) -> list[EngineOutput]:
        """Does a portion of what flushes and evictions left to do; answers those that are done."""
        self._cache.tidy()
        answers: list[EngineOutput] = []
        while self._evictions and self._evictions[0].pruning.is_done:
            answers.append(self._evictions.popleft().result())
        return answers + (self._sweep(self._sweeps[0]) if self._sweeps else [])

    def _sweep(self, sweep: _Sweep) -> list[EngineOutput]:
        evicted = self._cache.evict_some(sweep.wanted - sweep.evicted)
        sweep.evicted += evicted
        if evicted and sweep.evicted < sweep.wanted:
            return []
        self._sweeps.popleft()
        kept = self._cache.protected_size
        figures = {"evicted_tokens": sweep.evicted, "kept_tokens": kept}
        return [CommandResult(sweep.rid, f"flushed {sweep.evicted} tokens; {kept} are in use or pinned and stay", figures)]

    def update_weights(self, message: UpdateWeightsRequest) -> list[EngineOutput]:
        """Begins to read other weights, if no request is open; a WeightsRead tells what came of it."""
        if (refusal := self._no_update(message.rid)) is not None:
            return [refusal]
        if self._weights.model is not None:
            what = (
                f"can't update the weights now: those of {self._weights.model:.200} are being read; try again when they are loaded"
            )
            return [RequestFailed(message.rid, "busy", what)]
        if self._weights.weights.reads_files:
            self._weights.begin(message)
            return []
        return [self.put_weights(WeightsRead(message.rid, message.model, message.model))]

    def put_weights(self, message: WeightsRead) -> CommandResult | RequestFailed:
        """Swaps the weights, if no request is open. KV belongs to the weights that computed it: the tree is emptied."""
        weights = self._weights.result()
        if message.error is not None:
            return RequestFailed(message.rid, "invalid_request", message.error, "model")
        if (refusal := self._no_update(message.rid)) is not None:
            return refusal
        try:
            self._weights.weights.put(message.path, weights)
        except ModelError as error:
            return RequestFailed(message.rid, "invalid_request", str(error), "model")
        return CommandResult(message.rid, f"loaded {message.model}, {self._empty_tree()}")

    def watch(self, on: bool) -> list[EngineOutput]:
        """Begins to watch, with a snapshot, or stops."""
        if self._watch is not None:
            self._watch.stop()
        self._watch = Watch(self._scheduler, self.pins) if on else None
        return [CacheNews(seal(self._watch.snapshot()))] if self._watch is not None else []

    def news(self) -> list[EngineOutput]:
        """What happened since the last call, while somebody watches."""
        news = self._watch.news() if self._watch is not None else None
        return [CacheNews(seal(news))] if news is not None else []

    def _pin(self, message: CacheCommand) -> CommandResult:
        node = self._find(message.node) if message.node is not None else self._find_prefix(message)
        added = self.pins.pin(node, self._reqs.values(), subtree=message.subtree)
        figures = {"node": node.serial, "newly_pinned_tokens": added, "pinned_tokens": self.pins.num_tokens}
        return CommandResult(message.rid, f"pinned {added} tokens more, {self.pins.num_tokens} in all", figures)

    def _unpin(self, message: CacheCommand) -> CommandResult:
        number = self.pins.unpin(self._find(message.node)) if message.node is not None else self.pins.clear()
        if message.node is not None and not number:
            raise InvalidRequestError(f"nothing at or below node {message.node} is pinned", param="node", code="not_pinned")
        figures = {"ended_pins": number, "pinned_tokens": self.pins.num_tokens}
        return CommandResult(message.rid, f"ended {number} pins; {self.pins.num_tokens} tokens are still pinned", figures)

    def _evict(self, message: CacheCommand) -> list[EngineOutput]:
        eviction = _Evicting(message.rid, self._cache.evict_below(self._find(message.node)))
        if eviction.pruning.is_done:
            return [eviction.result()]
        self._evictions.append(eviction)
        return []

    def _find(self, serial: int | None) -> Node:
        if serial is not None and (node := self._cache.tree.nodes.get(serial)) is not None:
            return node
        raise InvalidRequestError(
            f"node {serial} is not in the tree: it was evicted, or never was; GET /cache/tree lists the nodes",
            param="node",
            code="node_not_found",
        )

    def _find_prefix(self, message: CacheCommand) -> Node:
        node = self._cache.end_of_match(message.prompt_ids, self._adapters.extra_key(message.adapter, message.cache_salt))
        if node is None:
            raise InvalidRequestError(
                "nothing of this prompt is in the cache: send it as a request, or to POST /cache/warm, then pin it",
                param="prompt",
                code="not_cached",
            )
        return node

    def _no_update(self, rid: str) -> RequestFailed | None:
        """Why the weights can't be swapped in this step, if they can't."""
        if self._reqs:
            return self._busy(rid, "update the weights")
        if self._adapters.loaded:
            what = f"adapters are loaded that were made for the present weights: unload {', '.join(self._adapters.loaded)} first"
            return RequestFailed(rid, "invalid_request", what, "model")
        return None

    def _empty_tree(self) -> str:
        num_pins = self.pins.clear()
        return f"flushed {self._cache.flush()} tokens" + (f" and ended {num_pins} pins" if num_pins else "")

    def _busy(self, rid: str, wish: str) -> RequestFailed:
        num_running = len(self._scheduler.running)
        counts = f"{num_running} requests run and {len(self._reqs) - num_running} wait"
        return RequestFailed(rid, "busy", f"can't {wish} now: {counts}; try again when they have ended")
