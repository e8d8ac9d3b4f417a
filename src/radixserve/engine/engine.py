"""The engine: messages in, steps, messages out.

`receive` only queues. The queue is applied at the start of the next `step`, in order, and nothing else decides what a step does: no
clock, no set order, no free memory. Two engines that are fed the same messages before the same steps do the same.
"""

from collections.abc import Callable
from dataclasses import asdict

from radixserve.batch import ForwardBatch
from radixserve.cache.prefix_cache import PrefixCache
from radixserve.cache_report import CacheReport
from radixserve.engine.adapter_reader import AdapterWeights, NoWeights
from radixserve.engine.adapters import NamedAdapters
from radixserve.engine.answer import Answer, End
from radixserve.engine.arrivals import Arrivals
from radixserve.engine.cache_commands import CacheCommands
from radixserve.engine.grammar_queue import GrammarQueue
from radixserve.engine.grammars import Grammars
from radixserve.engine.page_reports import PageReports
from radixserve.engine.ranks.leader import Leader
from radixserve.engine.recording import Recorder
from radixserve.engine.runner import Runner, StepResult
from radixserve.engine.totals import EngineTotals
from radixserve.engine.weights import ModelWeights, NoModel, WeightsReader
from radixserve.errors import InvalidRequestError
from radixserve.ipc import (
    AbortRequest,
    CacheCommand,
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
    LoadAdapter,
    ReportPages,
    RequestFailed,
    TopPrefixes,
    TopRequest,
    UnloadAdapter,
    UpdateWeightsRequest,
    WatchRequest,
    WeightsRead,
)
from radixserve.observe.observer import Observer
from radixserve.observe.top import rank_prefixes
from radixserve.req import Req
from radixserve.scheduler.pins import Pins
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
        adapters: AdapterWeights | None = None,
        weights: ModelWeights | None = None,
    ) -> None:
        self.info = info
        self.scheduler = scheduler
        self.tokenizer = tokenizer
        self.runner = runner
        self._inbox: list[EngineInput] = []
        self._reqs: dict[str, Req] = {}
        self._answers: dict[str, Answer] = {}
        self.totals = EngineTotals()
        self._grammars = GrammarQueue(grammars)
        pins = Pins(scheduler.cache)
        self._adapters = NamedAdapters(scheduler.cache, pins, self._reqs, adapters or NoWeights())
        self._weights = WeightsReader(weights or NoModel())
        self._acts = CacheCommands(scheduler, self._reqs, pins, self._adapters, self._weights)
        self._arrivals = Arrivals(info.limits, eos_ids, self._reqs, pins, self._adapters, grammars=grammars is not None)
        self._page_reports = PageReports()
        self.observer: Observer | None = None
        """Explains and counts, if there is one."""
        self.recorder: Recorder | None = None
        """Told of every message and step, if there is one."""
        self.leader: Leader | None = None
        """Tells the other ranks what each step begins with, if there are any."""

    @property
    def cache(self) -> PrefixCache:
        return self.scheduler.cache

    @property
    def pins(self) -> Pins:
        return self._acts.pins

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        if self._inbox or self.scheduler.has_work or not self._acts.is_tidy:
            return True
        if self._grammars.has_finished or self._adapters.reader.has_finished or self._weights.has_finished:
            return True
        return self.leader is not None and self.leader.alarm.has_rung

    def notify(self, wake: Callable[[], None]) -> None:
        """From now on `wake` is called, by some thread, whenever `has_work` became true without a message of the caller's."""
        self._grammars.notify(wake)
        self._adapters.reader.on_read = wake
        self._weights.on_read = wake
        if self.leader is not None:
            self.leader.alarm.on_ring = wake

    def start_ahead(self) -> None:
        """Starts what the first request with a grammar would have to wait for: for an engine that stays."""
        self._grammars.start_ahead()

    def receive(self, message: EngineInput) -> None:
        """Queues a message for the start of the next step; an adapter is read before."""
        if not (isinstance(message, LoadAdapter) and self._adapters.reader.begin(message)):
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
        if tidies := not self._acts.is_tidy:
            outputs += self._acts.tidy()
        if self.recorder is not None:
            self.recorder.end_step(batch, token_ids, self.cache, tidies=tidies, idle=not self.scheduler.has_work)
        if self.observer is not None:
            self.observer.end_step()
        return outputs + self._acts.news() + self._page_reports.news()

    def stats(self) -> EngineStats:
        """Gauges and totals as of now."""
        cache, totals = self.cache, self.totals
        return EngineStats(
            num_waiting=len(self.scheduler.waiting) + len(self._grammars),
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
            **asdict(totals),
        )

    # Messages in

    def _apply_inbox(self) -> list[EngineOutput]:
        self._inbox += [*self._grammars.take_finished(), *self._adapters.reader.take_finished(), *self._weights.take_finished()]
        inbox, self._inbox = self._inbox, []
        if self.leader is not None:
            self.leader.begin_step(inbox)
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
                return self._acts.flush(message)
            case UpdateWeightsRequest():
                return self._acts.update_weights(message)
            case WeightsRead():
                return [self._acts.put_weights(message)]
            case LoadAdapter():
                return [self._adapters.load(message)]
            case UnloadAdapter():
                return [self._adapters.unload(message)]
            case GrammarFinished():
                return self._start_compiled(message)
            case CacheCommand():
                return self._acts.carry_out(message)
            case WatchRequest():
                return list(self._acts.watch(message.on))
            case ReportPages():
                self._page_reports.begin(self.cache)
                return []
            case ExplainRequest():
                found = self.observer.explanations(message.request_id) if self.observer is not None else []
                return [Explained(message.rid, found)]
            case TopRequest():
                return [TopPrefixes(message.rid, rank_prefixes(self.cache, message.count))]

    def _arrive(self, message: GenerateRequest) -> list[EngineOutput]:
        try:
            req = self._arrivals.take(message)
        except InvalidRequestError as error:
            return [RequestFailed.of(message.rid, error)]
        self._reqs[req.rid] = req
        self._answers[req.rid] = Answer(req, self.tokenizer)
        if self._grammars.make_ready(req):
            self.scheduler.add(req)
        return []

    def _start_compiled(self, message: GrammarFinished) -> list[EngineOutput]:
        """Lets the requests go that waited for this grammar, or refuses them."""
        reqs = self._grammars.release(message)
        if message.error is not None:
            for req in reqs:
                self._forget(req, "error")
            return [RequestFailed(req.rid, "invalid_request", message.error, "grammar") for req in reqs]
        for req in reqs:
            self.scheduler.add(req)
        return []

    def _abort(self, rid: str) -> list[EngineOutput]:
        req = self._reqs.get(rid)
        if req is None:
            return []
        answer = self._answers[rid]
        if self._grammars.remove(req):
            self._forget(req, "abort")
        else:
            self._end(req, "abort")
        return [answer.output("", (), End("abort"))]

    # Tokens out

    def _deliver(self, batch: ForwardBatch, result: StepResult) -> list[EngineOutput]:
        """Gives every sampled token to its request, and ends the requests that have their last."""
        self.totals.num_steps += 1
        self.totals.computed_tokens += len(batch.input_ids)
        outputs: list[EngineOutput] = []
        for run, scores in zip(batch.scored, result.prompt_logprobs, strict=True):
            run.req.prompt_logprobs += scores
        for req, token_id, logprob in zip(batch.sampled, result.token_ids, result.logprobs, strict=True):
            answer = self._answers[req.rid]
            if token_id < 0 or (req.matcher is not None and not req.matcher.accept(token_id)):
                self._end(req, "error")
                self._grammars.fail(req)
                outputs.append(answer.failure())
                continue
            if req.max_tokens == 0:  # only its prompt was wanted
                self._end(req, "length")
                outputs.append(answer.output("", (), End("length")))
                continue
            token_ids: tuple[int, ...] = (token_id,)
            text, end = answer.push(token_id)
            if req.matcher is not None and end is None:
                before = len(req.output_ids)
                text, end = self._jump_forward(answer, text)
                token_ids += tuple(req.output_ids[before:])
            self.totals.generated_tokens += len(token_ids)
            if end is not None:
                self._end(req, end.reason)
            outputs.append(answer.output(text, token_ids, end, logprob))
        return outputs

    def _jump_forward(self, answer: Answer, text: str) -> tuple[str, End | None]:
        """Adds what the grammar forces now to an answer and to the `text` it releases: the next step computes it as one chunk.

        It ends where the matcher can't go on, since a limit of its library was hit: the next token tells why.
        """
        matcher = answer.req.matcher
        for token_id in self._grammars.forced(answer.req):
            if matcher is None or not matcher.accept(token_id):
                break
            self.totals.forced_tokens += 1
            piece, end = answer.push(token_id)
            text += piece
            if end is not None:
                return text, end
        return text, None

    def _end(self, req: Req, reason: FinishReason) -> None:
        self.scheduler.finish(req, reason)
        self._forget(req, reason)

    def _forget(self, req: Req, reason: FinishReason) -> None:
        """The last of a request that the scheduler does not have, or no longer."""
        del self._reqs[req.rid], self._answers[req.rid]
        self._adapters.end(req)
        self.totals.count(req, reason)
