"""The living replicas, as the shared state knows them: looked at every POLL_S.

A state that doesn't answer may be on its way back (Ray starts it anew): what was known holds as long as any replica answers. Where
none does either, the cluster is gone: what was known holds until SILENT_S, then nothing can be answered, and after LOST_S for ever.
"""

import asyncio
import logging
from typing import Any

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from radixserve.errors import EngineDeadError
from radixserve.replicas.remote_replica import RemoteReplica
from radixserve.replicas.state import Member
from radixserve.replicas.state_actor import SharedState

POLL_S = 1.0
LOOK_S = 2.0
"""What the state gets to answer."""
MISSED_LOOKS = 3
"""Looks at which a replica must be missing to be gone: a state that was started anew hears of all within some seconds."""
SILENT_S = 5.0
LOST_S = 30.0

logger = logging.getLogger(__name__)


class Members:
    """Use it on one event loop."""

    def __init__(self, handle: "DeploymentHandle[Any]", state: SharedState) -> None:
        self.replicas: dict[str, RemoteReplica] = {}
        """By name, in the order of their joining."""
        self.dead = asyncio.Event()
        """Set when the cluster is taken for gone."""
        self._handle = handle
        self._state = state
        self._silent_s = 0.0
        self._missed: dict[str, int] = {}
        """Looks in a row at which a replica was missing."""

    @property
    def failure(self) -> EngineDeadError | None:
        """Why nothing can be answered now."""
        if self._silent_s > SILENT_S:
            return EngineDeadError("the Ray cluster doesn't answer: see whether it runs")
        if not self.replicas:
            return EngineDeadError("no replica lives: wait until one is started, or look at Ray's logs")
        return None

    async def follow(self) -> None:
        """Looks until `dead`."""
        loop = asyncio.get_running_loop()
        while self._silent_s < LOST_S:
            began_s = loop.time()
            await asyncio.sleep(POLL_S)
            if await self._state_answers() or await self._some_replica_answers():
                self._silent_s = 0.0
            else:  # what is more than a round was a stop of this process or the machine, in which nobody could be heard
                self._silent_s += min(loop.time() - began_s, POLL_S + 2 * LOOK_S)
        self.dead.set()

    async def look(self) -> bool:
        """Takes over who lives; whether any does. Raises RayError where the state can't be reached."""
        members: list[Member] = await self._state.ask("members")
        missing = self.replicas.keys() - {member.name for member in members}
        self._missed = {name: self._missed.get(name, 0) + 1 for name in missing}
        for name, missed in self._missed.items():
            if missed >= MISSED_LOOKS:
                self.replicas.pop(name).dead.set()
                logger.warning("replica %s is gone", name)
        for member in members:
            if member.name in self.replicas:
                self.replicas[member.name].member = member
            else:
                self.replicas[member.name] = RemoteReplica(self._handle, member)
                logger.info("replica %s is ready", member.name)
        return bool(self.replicas)

    async def _state_answers(self) -> bool:
        try:
            async with asyncio.timeout(LOOK_S):
                await self.look()
        except (RayError, TimeoutError):
            return False
        return True

    async def _some_replica_answers(self) -> bool:
        answer = self._handle.ping.remote()
        try:
            async with asyncio.timeout(LOOK_S):
                await answer
        except (RayError, RayServeException, TimeoutError):
            return False
        finally:
            answer.cancel()
        return True
