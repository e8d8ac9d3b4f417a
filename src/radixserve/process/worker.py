"""The engine process: builds the engine, then applies messages, steps and sends what came out, until its parent ends it.

Its first message is an EngineInfo, or a RequestFailed without a request id that says why it can't start. An exception in a step
is fatal, since nobody knows what state it leaves: the reason is sent the same way and the process exits with code 1. The process
starts with SIGINT and SIGTERM blocked (see `client`): the parent decides when it ends, and it never outlives its parent.
"""

import logging
import multiprocessing
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from radixserve import heap
from radixserve.config import EngineConfig
from radixserve.errors import ConfigError, RankError
from radixserve.ipc import EngineInfo, EngineInput, EngineOutput, EngineStats, RequestFailed, Sync, Synced
from radixserve.process.channel import EngineEnd

NO_REQUEST = ""
"""Request id of a failure of the engine itself."""

STATS_EVERY_S = 0.1
"""How old the stats may be that a busy engine's reader has. To gather, send and read them costs 0.1 ms."""

logger = logging.getLogger(__name__)


class SteppedEngine(Protocol):
    """What the loop asks of an engine."""

    info: EngineInfo

    @property
    def has_work(self) -> bool:
        """Whether a step would do something without further messages."""

    def notify(self, wake: Callable[[], None]) -> None:
        """`wake` is called, by any thread, when `has_work` may have become true without a message."""

    def receive(self, message: EngineInput) -> None:
        """Takes a message, to be applied at the start of the next step."""

    def step(self) -> list[EngineOutput]:
        """Applies the messages received, then computes one step."""

    def stats(self) -> EngineStats:
        """Gauges and running totals."""


def main(config: EngineConfig, folder: Path) -> None:
    """Entry point of the process; `folder` holds the sockets of the channel."""
    threading.Thread(target=_end_with_parent, args=(folder,), daemon=True).start()
    channel = EngineEnd(folder)
    try:
        engine = _build(config)
        channel.send([engine.info, engine.stats()])
        run(engine, channel)
    except ConfigError as error:
        channel.send([RequestFailed(rid=NO_REQUEST, kind="invalid_request", message=str(error))])
    except RankError as error:
        channel.send([RequestFailed(rid=NO_REQUEST, kind="internal", message=f"the engine failed: {error}")])
    except Exception as error:
        logger.exception("the engine failed")
        reason = f"the engine failed: {type(error).__name__}: {error}"
        channel.send([RequestFailed(rid=NO_REQUEST, kind="internal", message=reason)])
    channel.close()
    sys.exit(1)


def run(engine: SteppedEngine, channel: EngineEnd) -> None:
    """Steps for ever; sleeps while there is no work and wakes on a message.

    Before it sleeps, and for a Sync, its stats are sent as they are.
    """
    engine.notify(channel.wake)
    stats, due_s = engine.stats(), 0.0
    while True:
        synced: list[EngineOutput] = []
        for message in channel.receive(wait=not engine.has_work):
            if isinstance(message, Sync):
                synced.append(Synced(message.rid))
            else:
                engine.receive(message)
        outputs = engine.step() if engine.has_work else []
        if synced or not engine.has_work or time.monotonic() >= due_s:
            due_s = time.monotonic() + STATS_EVERY_S
            if (now := engine.stats()) != stats:
                stats = now
                outputs = [*outputs, stats]
        outputs = [*outputs, *synced]
        if outputs:
            channel.send(outputs)


def _build(config: EngineConfig) -> SteppedEngine:
    # Imported here because the parent imports this module too, and must start without loading torch.
    from radixserve.engine.build import build_engine

    engine = build_engine(config)
    engine.start_ahead()
    heap.keep_collections_short()
    return engine


def _end_with_parent(folder: Path) -> None:
    """Ends this process at once when its parent is gone, whatever the main thread is doing."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)
