"""The process of a rank other than the first: `python -m radixserve.engine.ranks.follow FD RANK`, started by the leader.

It runs the same engine over its own tree, scheduler and pool, and is told each step's messages and tokens. It ends with the leader.
"""

import logging
import os
import sys
import threading
from multiprocessing.connection import Connection
from typing import NoReturn

from radixserve import heap
from radixserve.engine.assemble import assemble
from radixserve.engine.build import make_info
from radixserve.engine.engine import Engine
from radixserve.engine.grammars import Grammars
from radixserve.engine.loaded_model import load_rank
from radixserve.engine.model_runner import ForwardRunner
from radixserve.engine.ranks.group import find_store
from radixserve.engine.ranks.link import Begin, Fault, Join, Link, Loaded, PeerLostError, Ready, Step
from radixserve.engine.ranks.runners import FollowingRunner
from radixserve.engine.ranks.weights import FollowingAdapters, FollowingWeights
from radixserve.engine.weights import DecoderWeights
from radixserve.errors import ConfigError, RankError
from radixserve.grammar import CompiledGrammar
from radixserve.ipc import GrammarFinished
from radixserve.sampling_params import Grammar

logger = logging.getLogger(__name__)


class FollowedGrammars(Grammars):
    """Grammars of a rank that is told when one is compiled: it compiles its own then, in the step that the message belongs to.

    What rank 0 could compile, on trial first, has a bounded cost. So nothing here depends on this process's own clock.
    """

    def compile(self, grammar: Grammar) -> None:
        """Nothing yet."""

    def give_up(self, grammar: Grammar) -> bool:
        """Always: whether rank 0 could is known when no message comes."""
        return True

    def take_finished(self) -> list[GrammarFinished]:
        """Nothing ever: the message comes from rank 0."""
        return []

    def keep(self, grammar: Grammar) -> CompiledGrammar:
        """See `Grammars`. Raises InvalidRequestError where it can't be compiled here."""
        self._made[grammar] = self._compiler.result().compile(grammar)
        return super().keep(grammar)


def main(descriptor: int, rank: int) -> NoReturn:
    """Serves as `rank` until the leader is gone; then, and after a failure that the leader is told, the exit code is 1."""
    threading.Thread(target=_end_with_leader, daemon=True).start()
    link = Link(Connection(descriptor))
    try:
        _serve(link, rank)
    except PeerLostError:
        pass  # whoever ended first has said why
    except ConfigError as error:
        link.try_to_send(Fault(str(error), config=True))
    except RankError as error:
        link.try_to_send(Fault(str(error)))
    except Exception as error:
        logger.exception("rank %d failed", rank)
        link.try_to_send(Fault(f"{type(error).__name__}: {error}"))
    sys.stderr.flush()
    os._exit(1)  # threads that wait for a sum or compile a grammar are not waited for


def follow(engine: Engine, link: Link) -> NoReturn:
    """Steps as rank 0 does, for ever. Raises RankError where the two differ, PeerLostError when rank 0 is gone."""
    runner = engine.runner
    assert isinstance(runner, FollowingRunner)
    while True:
        frame = link.receive()
        if not isinstance(frame, Step):
            raise runner.differs("rank 0 computes a batch, and this rank has none")
        for message in frame.messages:
            engine.receive(message)
        engine.step()


def _serve(link: Link, rank: int) -> NoReturn:
    begin = link.receive()
    assert isinstance(begin, Begin)
    config = begin.config
    loaded = load_rank(config, rank)
    link.send(Loaded(loaded.num_slots))
    join = link.receive()
    assert isinstance(join, Join)
    pool = loaded.make_pool(join.num_slots)
    runner = ForwardRunner(loaded.decoder, pool)
    grammars = FollowedGrammars(loaded.load_grammar_compiler, jump_forward=config.jump_forward)
    adapters = FollowingAdapters(loaded.decoder.adapters, link)
    weights = FollowingWeights(DecoderWeights(loaded.decoder), link)
    engine = assemble(config, make_info(loaded, pool), runner, loaded.tokenizer, loaded.eos_ids, grammars, adapters, weights)
    engine.runner = FollowingRunner(runner, link, rank, engine.cache)
    assert loaded.group is not None
    loaded.group.join(find_store(join.port))
    link.send(Ready(loaded.rank_info(rank, join.num_slots)))
    heap.keep_collections_short()
    follow(engine, link)


def _end_with_leader() -> NoReturn:
    """Standard input closes when the leader's process is gone, whatever the main thread is doing."""
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
