"""What all handles and replicas of one application share: the router and what replicas say of themselves. Pure.

Replicas join, report, and are told when they are not known; handles route, and say who left. So a replica is a member from its own
word on, until a handle hears from Ray that it is gone. It is never taken back then, whatever it may still send.
"""

from collections.abc import Iterable, Sequence

import msgspec

from radixserve.ipc import EngineInfo, EngineStats, PageChange
from radixserve.routing.prompt import Prompt
from radixserve.routing.router import NoReplicaError, Router


class Report(msgspec.Struct, frozen=True):
    """What a replica tells of itself since its last report. `ended`: requests, and whether they had a token."""

    name: str
    stats: EngineStats
    changes: Sequence[PageChange] = ()
    ended: Sequence[tuple[str, bool]] = ()


class Member(msgspec.Struct):
    """A replica as those see it who look at the whole."""

    name: str
    info: EngineInfo
    stats: EngineStats
    queue_tokens: int = 0
    """Tokens that its requests have to compute before they answer, as the router counts them."""
    num_requests: int = 0
    draining: bool = False


class RouterState:
    """One application's. Unknown ids and names are ignored: messages cross on their way."""

    def __init__(self, policy: str) -> None:
        """`policy`: a name in `routing.policies`. Raises ConfigError for another."""
        self._router = Router(policy)
        self._members: dict[str, Member] = {}
        self._draining: set[str] = set()
        self._gone: set[str] = set()
        self._failure: str | None = None

    def join(self, name: str, info: EngineInfo) -> None:
        """A replica is ready, with an empty cache as far as is known here. Who joins again keeps what is known."""
        if name not in self._gone and name not in self._members:
            self._router.join(name, info.limits.num_slots)
            self._members[name] = Member(name, info, EngineStats())

    def report(self, report: Report) -> bool:
        """Takes a report. False: the replica isn't known, and should join."""
        if report.name not in self._members:
            return report.name in self._gone
        self._members[report.name].stats = report.stats
        for change in report.changes:
            self._apply(report.name, change)
        for rid, had_token in report.ended:
            if had_token:
                self._router.started(rid)
            self.ended(rid)
        return True

    def fail(self, reason: str) -> None:
        """A replica can't start."""
        self._failure = reason

    def failure(self) -> str | None:
        """Why the last one that can't start can't."""
        return self._failure

    def route(self, rid: str, prompt: Prompt, among: Sequence[str]) -> str | None:
        """Chooses one of the replicas `among`; None where none of them is known here. A request may be routed again."""
        self.ended(rid)
        try:
            return self._router.route(rid, prompt, among)
        except NoReplicaError:
            return None

    def started(self, rid: str) -> None:
        """A request has its first token."""
        self._router.started(rid)

    def ended(self, rid: str) -> None:
        """A request has ended, or never reached its replica."""
        self._router.ended(rid)
        for name in tuple(self._draining):
            self._leave_if_idle(name)

    def drain(self, names: Iterable[str]) -> None:
        """These get no more requests, and leave when they have none."""
        for name in names:
            if name in self._members:
                self._router.drain(name)
                self._draining.add(name)
                self._leave_if_idle(name)

    def leave(self, name: str) -> None:
        """A replica is dead: it is forgotten, with its requests."""
        self._gone.add(name)
        self._draining.discard(name)
        self._router.leave(name)
        self._members.pop(name, None)

    def members(self) -> list[Member]:
        """All of them, in order of joining."""
        for name, member in self._members.items():
            replica = self._router.replicas[name]
            member.queue_tokens, member.num_requests = replica.queue_tokens, replica.num_requests
            member.draining = replica.draining
        return list(self._members.values())

    def _apply(self, name: str, change: PageChange) -> None:
        match change.kind:
            case "stored":
                self._router.stored(name, change.pages)
            case "removed":
                self._router.removed(name, change.pages)
            case "flushed":
                self._router.flushed(name)

    def _leave_if_idle(self, name: str) -> None:
        if self._router.replicas[name].num_requests == 0:
            self.leave(name)
