"""Requests that wait, outside of the scheduler, until their grammar is compiled. It changes with the engine's messages alone."""

from collections.abc import Callable

from radixserve.engine.grammars import Grammars
from radixserve.grammar import CompiledGrammar
from radixserve.ipc import GrammarFinished
from radixserve.req import Req
from radixserve.sampling_params import Grammar


class GrammarQueue:
    """The queue of one engine, and what it needs of its grammars; an engine without any never has a request that waits."""

    def __init__(self, grammars: Grammars | None) -> None:
        self._grammars = grammars
        self._waiting: dict[Grammar, dict[Req, None]] = {}
        """In order, by what they wait for. One that nobody waits for any more is here until it is compiled, if that has begun."""

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def has_finished(self) -> bool:
        """Whether a grammar is done whose message was not taken yet."""
        return self._grammars is not None and self._grammars.has_finished

    def start_ahead(self) -> None:
        """Starts what the first grammar would have to wait for."""
        if self._grammars is not None:
            self._grammars.start_ahead()

    def notify(self, wake: Callable[[], None]) -> None:
        """From now on `wake` is called, by some thread, whenever a grammar is done."""
        if self._grammars is not None:
            self._grammars.on_finished = wake

    def take_finished(self) -> list[GrammarFinished]:
        """The messages about grammars that are done since the last call."""
        return self._grammars.take_finished() if self._grammars is not None else []

    def make_ready(self, req: Req) -> bool:
        """Gives a new request its matcher, if it needs one; False when it has to wait for that."""
        grammar = req.params.grammar
        if grammar is None:
            return True
        assert self._grammars is not None
        compiled = self._grammars.find(grammar)
        if compiled is not None:
            _equip(req, compiled)
            return True
        if grammar not in self._waiting:
            self._waiting[grammar] = {}
            self._grammars.compile(grammar)
        self._waiting[grammar][req] = None
        return False

    def release(self, message: GrammarFinished) -> list[Req]:
        """Takes out who waited for this grammar, with their matchers unless it was refused. It may be that nobody does any more."""
        assert self._grammars is not None
        reqs = list(self._waiting.pop(message.grammar, {}))
        if message.error is None:
            compiled = self._grammars.keep(message.grammar)
            for req in reqs:
                _equip(req, compiled)
        return reqs

    def remove(self, req: Req) -> bool:
        """Takes a request out; False when it doesn't wait here."""
        grammar = req.params.grammar
        if self._grammars is None or grammar is None or req not in self._waiting.get(grammar, ()):
            return False
        del self._waiting[grammar][req]
        if not self._waiting[grammar] and self._grammars.give_up(grammar):
            del self._waiting[grammar]
        return True

    def fail(self, req: Req) -> None:
        """Forgets the grammar of a request that got no token: the copies of a matcher share its end, and new ones mustn't."""
        if self._grammars is not None and req.params.grammar is not None:
            self._grammars.forget(req.params.grammar)

    def forced(self, req: Req) -> list[int]:
        """The tokens that a request's grammar forces next and that needn't be computed one by one; none without a grammar."""
        return self._grammars.forced(req) if self._grammars is not None and req.matcher is not None else []


def _equip(req: Req, compiled: CompiledGrammar) -> None:
    req.matcher = compiled.matcher(ignore_eos=req.params.ignore_eos)
