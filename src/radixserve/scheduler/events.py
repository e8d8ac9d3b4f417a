"""What the scheduler tells its listeners: a request is about to run, runs, or is about to stop.

Nobody listens by default, and then no event is made. A listener is called in the middle of a plan: it reads the cache as it is at
that moment and changes nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass

from radixserve.req import Req


@dataclass(frozen=True, slots=True)
class SchedulerEvent:
    """Something happens to `req`."""

    req: Req


@dataclass(frozen=True, slots=True)
class Admitting(SchedulerEvent):
    """It will be admitted next; the tree is as it found it."""


@dataclass(frozen=True, slots=True)
class Admitted(SchedulerEvent):
    """It has its lease, its slots and its row."""


@dataclass(frozen=True, slots=True)
class Leaving(SchedulerEvent):
    """It ended or is preempted: what it computed is published, and its lease not yet released."""


SchedulerListener = Callable[[SchedulerEvent], None]
