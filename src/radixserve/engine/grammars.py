"""Grammars on their way into the engine: compiled by threads of their own, kept by content.

Compiling takes from a millisecond to seconds, so no step waits for it. A grammar that is done comes back as a message, in order
with all others; the engine keeps it when it applies that message. So what is kept, and who waits, depends on messages alone.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue

from radixserve.errors import InvalidRequestError
from radixserve.grammar import CompiledGrammar, GrammarCompiler
from radixserve.ipc import GrammarFinished
from radixserve.req import Req
from radixserve.sampling.grammar_trial import GrammarTrial
from radixserve.sampling_params import Grammar

NUM_KEPT = 256
"""Compiled grammars kept, those used last."""
NUM_THREADS = 2
"""One hard grammar does not hold up the easy ones behind it."""

logger = logging.getLogger(__name__)


def _ignore() -> None:
    pass


class Grammars:
    """The compiled grammars of one engine. The engine's loop calls everything; `on_finished` is called by other threads."""

    def __init__(
        self, load: Callable[[], GrammarCompiler], *, trial: GrammarTrial | None = None, jump_forward: bool = True
    ) -> None:
        """`load` makes the compiler; it runs on a thread at once, so that the first request finds it made.

        `trial`: where a grammar must have been compiled before it is here. Without, nothing limits the time.
        """
        self._trial = trial
        self._jump_forward = jump_forward
        self.on_finished: Callable[[], None] = _ignore
        self._threads = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="grammars")
        self._compiler: Future[GrammarCompiler] = self._threads.submit(load)
        self._kept: OrderedDict[Grammar, CompiledGrammar] = OrderedDict()
        self._begun: dict[Grammar, Future[None]] = {}
        self._made: dict[Grammar, CompiledGrammar] = {}
        self._finished: SimpleQueue[GrammarFinished] = SimpleQueue()

    def start_ahead(self) -> None:
        """Starts what the first grammar would have to wait for."""
        if self._trial is not None:
            self._trial.start_ahead()

    @property
    def has_finished(self) -> bool:
        """Whether a grammar is done whose message was not taken yet."""
        return not self._finished.empty()

    def find(self, grammar: Grammar) -> CompiledGrammar | None:
        """The grammar, if it is kept."""
        found = self._kept.get(grammar)
        if found is not None:
            self._kept.move_to_end(grammar)
        return found

    def compile(self, grammar: Grammar) -> None:
        """Begins to compile, or queues up for it; `take_finished` will tell of its end."""
        self._begun[grammar] = self._threads.submit(self._compile, grammar)

    def give_up(self, grammar: Grammar) -> bool:
        """Takes a grammar out of that queue; False when it is too late: `take_finished` will tell of its end, or has told."""
        begun = self._begun.get(grammar)
        if begun is None or not begun.cancel():
            return False
        del self._begun[grammar]
        return True

    def take_finished(self) -> list[GrammarFinished]:
        """The messages about grammars that are done since the last call."""
        messages: list[GrammarFinished] = []
        while True:
            try:
                message = self._finished.get_nowait()
            except Empty:
                return messages
            del self._begun[message.grammar]
            messages.append(message)

    def keep(self, grammar: Grammar) -> CompiledGrammar:
        """Takes a grammar in that was compiled without an error; the one that was not used for longest may go for it."""
        compiled = self._kept[grammar] = self._made.pop(grammar)
        if len(self._kept) > NUM_KEPT:
            self._kept.popitem(last=False)
        return compiled

    def forget(self, grammar: Grammar) -> None:
        """Who asks for this grammar from now on gets it compiled again; those who have it keep it."""
        self._kept.pop(grammar, None)

    def forced(self, req: Req) -> list[int]:
        """The tokens that must come next, as the tokenizer would write them; none where each is to be computed by itself.

        That is where jump-forward is off, and for a request that wants log-probabilities: each needs a step's logits.
        """
        if not self._jump_forward or req.params.logprobs is not None:
            return []
        assert req.matcher is not None
        return req.matcher.forced()

    def _compile(self, grammar: Grammar) -> None:
        error: str | None = None
        try:
            compiler = self._compiler.result()
            if self._trial is not None:
                self._trial.check(grammar)
            self._made[grammar] = compiler.compile(grammar)
        except InvalidRequestError as refusal:
            error = refusal.message
        except Exception as fault:
            logger.exception("a grammar could not be compiled")
            error = f"the {grammar.kind} could not be compiled: {type(fault).__name__}: {fault}"
        self._finished.put(GrammarFinished(grammar, error))
        self.on_finished()
