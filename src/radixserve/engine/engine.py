"""The engine: messages in, steps, messages out.

`receive` only queues. The queue is applied at the start of the next `step`, in order, and nothing else decides what a step does: no
clock, no set order, no free memory. Two engines that are fed the same messages before the same steps do the same.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from radixserve.batch import ForwardBatch
from radixserve.cache.pins import Pins
from radixserve.cache.prefix_cache import PrefixCache
from radixserve.cache_report import CacheReport
from radixserve.engine.acts import CacheActs
from radixserve.engine.answer import Answer, End
from radixserve.engine.grammars import Grammars
from radixserve.engine.recording import Recorder
from radixserve.engine.runner import Runner, StepResult
from radixserve.errors import InvalidRequestError, ModelError
from radixserve.messages import (
    AbortRequest,
    CacheAct,
    CommandResult,
    EngineInfo,
    EngineInput,
    EngineOutput,
    EngineStats,
    Explained,
    ExplainRequest,
    FinishReason,
    FlushRequest,
    GenerateRequest,
    GrammarFinished,
    Output,
    RequestFailed,
    TokenLogprob,
    TopPrefixes,
    TopRequest,
    UpdateWeightsRequest,
    WatchRequest,
)
from radixserve.observe.observer import Observer
from radixserve.observe.top import rank_prefixes
from radixserve.req import ExtraKey, Req
from radixserve.sampling_params import Grammar
from radixserve.scheduler.scheduler import Scheduler
from radixserve.text.tokenizer import Tokenizer


class Engine:
    """One model, one cache, one scheduler. Not thread-safe: one loop owns it."""

    def __init__(
        self,
        info: EngineInfo,
        scheduler: Scheduler,
        runner: Runner,
        tokenizer: Tokenizer | None = None,
        eos_ids: frozenset[int] = frozenset(),
        grammars: Grammars | None = None,
    ) -> None:
        self.info = info
        self.scheduler = scheduler
        self.tokenizer = tokenizer
        self.runner = runner
        self._eos_ids = eos_ids
        self._grammars = grammars
        self._compiling: dict[Grammar, list[Req]] = {}
        """Requests outside of the scheduler, by the grammar that they wait for."""
        self._inbox: list[EngineInput] = []
        self._reqs: dict[str, Req] = {}
        self._answers: dict[str, Answer] = {}
        self._num_arrivals = 0
        self._totals = EngineTotals()
        self._acts = CacheActs(scheduler, self._reqs)
        self.observer: Observer | None = None
        """Explains and counts, if there is one."""
        self.recorder: Recorder | None = None
        """Told of every message and step, if there is one."""

    @property
    def cache(self) -> PrefixCache:
        return self.scheduler.cache

    @property
    def pins(self) -> Pins:
        return self._acts.pins

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._inbox) or self.scheduler.has_work or (self._grammars is not None and self._grammars.has_finished)

    def notify(self, wake: Callable[[], None]) -> None:
        """From now on `wake` is called, by some thread, whenever `has_work` became true without a message of the caller's."""
        if self._grammars is not None:
            self._grammars.on_finished = wake

    def receive(self, message: EngineInput) -> None:
        """Queues a message for the start of the next step."""
        self._inbox.append(message)

    def step(self) -> list[EngineOutput]:
        """Applies what was received, computes one batch, and tells what came of it."""
        outputs = self._apply_inbox()
        batch = self.scheduler.plan()
        token_ids: list[int] = []
        if batch is not None:
            result = self.runner.launch(batch).result()
            self.scheduler.commit(batch)
            outputs += self._deliver(batch, result)
            token_ids = result.token_ids
        if self.recorder is not None:
            self.recorder.end_step(batch, token_ids, self.cache, idle=not self.scheduler.has_work)
        if self.observer is not None:
            self.observer.end_step()
        return outputs + self._acts.news()

    def count(self, num_steps: int, computed_tokens: int, generated_tokens: int) -> None:
        """Adds steps to the totals that somebody else made of this engine's scheduler and cache: a simulation that jumps."""
        self._totals.num_steps += num_steps
        self._totals.computed_tokens += computed_tokens
        self._totals.generated_tokens += generated_tokens

    def stats(self) -> EngineStats:
        """Gauges and totals as of now."""
        cache, totals = self.cache, self._totals
        return EngineStats(
            num_waiting=len(self.scheduler.waiting) + sum(map(len, self._compiling.values())),
            num_running=len(self.scheduler.running),
            num_slots=cache.num_slots,
            free_slots=cache.free_size,
            evictable_slots=cache.evictable_size,
            protected_slots=cache.protected_size,
            request_slots=cache.request_size,
            num_nodes=cache.num_nodes,
            evicted_tokens=cache.num_evicted,
            num_preemptions=self.scheduler.num_preemptions,
            cache=self.observer.report() if self.observer is not None else CacheReport(),
            **dataclasses.asdict(totals),
        )

    # Messages in

    def _apply_inbox(self) -> list[EngineOutput]:
        if self._grammars is not None:
            self._inbox += self._grammars.take_finished()
        inbox, self._inbox = self._inbox, []
        outputs: list[EngineOutput] = []
        for message in inbox:
            answers = self._apply(message)
            if self.recorder is not None:
                self.recorder.take(message, answers)
            outputs += answers
        return outputs

    def _apply(self, message: EngineInput) -> list[EngineOutput]:
        match message:
            case GenerateRequest():
                return self._arrive(message)
            case AbortRequest():
                return self._abort(message.rid)
            case FlushRequest():
                return [self._flush(message)]
            case UpdateWeightsRequest():
                return [self._update_weights(message)]
            case GrammarFinished():
                return self._start_compiled(message)
            case CacheAct():
                return [self._acts.carry_out(message)]
            case WatchRequest():
                return list(self._acts.watch(message.on))
            case ExplainRequest():
                found = self.observer.explanations(message.request_id) if self.observer is not None else []
                return [Explained(message.rid, found)]
            case TopRequest():
                return [TopPrefixes(message.rid, rank_prefixes(self.cache, message.count))]

    def _arrive(self, message: GenerateRequest) -> list[EngineOutput]:
        prompt = np.frombuffer(message.prompt_ids, dtype=np.int32)
        try:
            if message.rid in self._reqs:
                raise InvalidRequestError(f"request id {message.rid!r} is already in use: wait for its end or send another id")
            if message.adapter is not None:
                raise InvalidRequestError(f"adapter {message.adapter!r} is not loaded: this engine has none", param="adapter")
            if message.params.grammar is not None and self._grammars is None:
                raise InvalidRequestError("grammars are not supported by this engine: leave the constraint out", param="grammar")
            max_tokens = self.info.limits.check(prompt, message.params)
        except InvalidRequestError as error:
            return [RequestFailed(message.rid, "invalid_request", error.message, error.param, error.code)]
        params = message.params
        req = Req(
            rid=message.rid,
            arrival=self._num_arrivals,
            prompt=message.prompt_ids,
            prompt_len=len(prompt),
            params=params,
            max_tokens=max_tokens,
            stop_ids=frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else self._eos_ids),
            extra_key=ExtraKey(message.adapter, message.cache_salt),
            priority=message.priority,
            request_id=message.request_id or message.rid,
            explain_cache=message.explain_cache,
        )
        try:
            self.pins.check(req)
        except InvalidRequestError as error:
            return [RequestFailed(message.rid, "invalid_request", error.message, error.param, error.code)]
        self._num_arrivals += 1
        self._reqs[req.rid] = req
        self._answers[req.rid] = Answer(req, self.tokenizer)
        if params.grammar is None or self._compiled(req, params.grammar):
            self.scheduler.add(req)
        return []

    def _compiled(self, req: Req, grammar: Grammar) -> bool:
        """Gives the request its matcher, or lets it wait outside of the scheduler until its grammar is compiled."""
        assert self._grammars is not None
        compiled = self._grammars.find(grammar)
        if compiled is not None:
            req.matcher = compiled.matcher(ignore_eos=req.params.ignore_eos)
            return True
        if grammar not in self._compiling:
            self._compiling[grammar] = []
            self._grammars.compile(grammar)
        self._compiling[grammar].append(req)
        return False

    def _start_compiled(self, message: GrammarFinished) -> list[EngineOutput]:
        """Lets the requests go that waited for this grammar, or refuses them."""
        assert self._grammars is not None
        reqs = self._compiling.pop(message.grammar)
        if message.error is not None:
            for req in reqs:
                self._forget(req, "error")
            return [RequestFailed(req.rid, "invalid_request", message.error, "grammar") for req in reqs]
        compiled = self._grammars.keep(message.grammar)
        for req in reqs:
            req.matcher = compiled.matcher(ignore_eos=req.params.ignore_eos)
            self.scheduler.add(req)
        return []

    def _abort(self, rid: str) -> list[EngineOutput]:
        req = self._reqs.get(rid)
        if req is None:
            return []
        waiting = self._compiling.get(req.params.grammar, []) if req.params.grammar is not None else []
        if req in waiting:
            waiting.remove(req)
            self._forget(req, "abort")
        else:
            self._end(req, "abort")
        return [self._output(req, "", (), End("abort"))]

    def _flush(self, message: FlushRequest) -> EngineOutput:
        if self.scheduler.has_work:
            return self._busy(message.rid, "flush the cache")
        return CommandResult(message.rid, self._empty_tree())

    def _update_weights(self, message: UpdateWeightsRequest) -> EngineOutput:
        """KV belongs to the weights that computed it, so new weights start with an empty tree."""
        if self.scheduler.has_work:
            return self._busy(message.rid, "update the weights")
        try:
            self.runner.update_weights(message.model)
        except ModelError as error:
            return RequestFailed(message.rid, "invalid_request", str(error), "model")
        return CommandResult(message.rid, f"loaded {message.model}, {self._empty_tree()}")

    def _empty_tree(self) -> str:
        num_pins = self.pins.clear()
        return f"flushed {self.cache.flush()} tokens" + (f" and ended {num_pins} pins" if num_pins else "")

    def _busy(self, rid: str, wish: str) -> RequestFailed:
        scheduler = self.scheduler
        counts = f"{len(scheduler.running)} requests run and {len(scheduler.waiting)} wait"
        return RequestFailed(rid, "busy", f"can't {wish} now: {counts}; try again when they have ended")

    # Tokens out

    def _deliver(self, batch: ForwardBatch, result: StepResult) -> list[EngineOutput]:
        """Gives every sampled token to its request, and ends the requests that have their last."""
        self._totals.num_steps += 1
        self._totals.computed_tokens += len(batch.input_ids)
        outputs: list[EngineOutput] = []
        for run, scores in zip(batch.scored, result.prompt_logprobs, strict=True):
            run.req.prompt_logprobs += scores
        for req, token_id, logprob in zip(batch.sampled, result.token_ids, result.logprobs, strict=True):
            if token_id < 0 or (req.matcher is not None and not req.matcher.accept(token_id)):
                self._end(req, "error")
                outputs.append(_failure(req))
                continue
            if req.max_tokens == 0:  # only its prompt was wanted
                self._end(req, "length")
                outputs.append(self._output(req, "", (), End("length")))
                continue
            before = len(req.output_ids)
            text, end = self._append(req, token_id)
            if end is None and req.matcher is not None:
                text, end = self._jump_forward(req, text)
            if end is not None:
                self._end(req, end.reason)
            outputs.append(self._output(req, text, tuple(req.output_ids[before:]), end, logprob))
        return outputs

    def _append(self, req: Req, token_id: int) -> tuple[str, End | None]:
        """Adds a token to an answer; returns the text it releases, and the end if it is one."""
        req.output_ids.append(token_id)
        self._totals.generated_tokens += 1
        return self._answers[req.rid].push(token_id)

    def _jump_forward(self, req: Req, text: str) -> tuple[str, End | None]:
        """Adds what the grammar forces now to an answer and to the `text` it releases: the next step computes it as one chunk."""
        assert self._grammars is not None
        assert req.matcher is not None
        for token_id in self._grammars.forced(req):
            accepted = req.matcher.accept(token_id)
            assert accepted, f"{req.rid}: the grammar forces token {token_id} and does not accept it"
            self._totals.forced_tokens += 1
            piece, end = self._append(req, token_id)
            text += piece
            if end is not None:
                return text, end
        return text, None

    def _output(
        self, req: Req, text: str, token_ids: tuple[int, ...], end: End | None, logprob: TokenLogprob | None = None
    ) -> Output:
        return Output(
            rid=req.rid,
            text=text,
            token_ids=token_ids,
            prompt_tokens=req.prompt_len,
            cached_tokens=req.cached_len or 0,
            completion_tokens=len(req.output_ids),
            finish_reason=end.reason if end is not None else None,
            stop_reason=end.stop_reason if end is not None else None,
            logprobs=(logprob,) if logprob is not None else (),
            prompt_logprobs=tuple(req.prompt_logprobs) if len(req.output_ids) == len(token_ids) else (),
            explanation=req.explanation if end is not None and req.explain_cache else None,
            admitted_s=req.admitted_s if end is not None else None,
        )

    def _end(self, req: Req, reason: FinishReason) -> None:
        self.scheduler.finish(req, reason)
        self._forget(req, reason)

    def _forget(self, req: Req, reason: FinishReason) -> None:
        """The last of a request that the scheduler does not have, or no longer."""
        del self._reqs[req.rid], self._answers[req.rid]
        self._totals.count(req, reason)


def _failure(req: Req) -> RequestFailed:
    """Why a request was not given a token."""
    position = req.seq_len
    if req.matcher is None:
        message = f"the model's logits at position {position} are not numbers: nothing can be sampled from them"
        return RequestFailed(req.rid, "internal", message)
    if fault := req.matcher.fault:
        message = f"the grammar became too costly at position {position}: {fault}; simplify it"
        return RequestFailed(req.rid, "invalid_request", message, "grammar")
    if len(req.output_ids) < req.params.min_tokens:
        message = f"min_tokens is {req.params.min_tokens}: the grammar allows only what would end the answer before; lower it"
        return RequestFailed(req.rid, "invalid_request", message, "min_tokens")
    message = f"the grammar allows no token that the model could give at position {position}"
    return RequestFailed(req.rid, "internal", message)


@dataclasses.dataclass
class EngineTotals:
    """Running totals, named as in EngineStats. A request counts when it ends, once, whatever happened to it on the way."""

    num_steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    computed_tokens: int = 0
    generated_tokens: int = 0
    forced_tokens: int = 0
    finished: dict[str, int] = dataclasses.field(default_factory=dict)

    def count(self, req: Req, reason: FinishReason) -> None:
        """Adds a request that ended. One that was never admitted has no say in the hit rate."""
        if req.cached_len is not None:
            self.prompt_tokens += req.prompt_len
            self.cached_tokens += req.cached_len
        self.finished[reason] = self.finished.get(reason, 0) + 1
