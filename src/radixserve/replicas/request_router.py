"""Ray Serve's choice of a replica, handed to the shared state: one of these lives in every process that holds a handle.

What a handle sends has as its first argument either the GenerateRequest to route or the name of the replica that it is for. Where
the state doesn't answer or knows none of the replicas, Serve chooses as it would without us. The end of a request is told by
who sent it (see `fleet`): Serve knows of no end of one that is cancelled on its way to a replica.
"""

import asyncio
import logging

from ray.exceptions import RayError
from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from radixserve.ipc import GenerateRequest
from radixserve.replicas.state_actor import SharedState
from radixserve.routing.prompt import Prompt
from radixserve.tokens import ExtraKey

ROUTE_S = 2.0
"""What the state gets to choose. Calls to one that Ray starts anew wait until it is there."""

logger = logging.getLogger(__name__)


class PrefixRequestRouter(RequestRouter):  # type: ignore[misc]  # which has no types
    """Plugged in by `RequestRouterConfig(request_router_class=...)`; `policy` is its keyword argument."""

    def initialize_state(self, policy: str) -> None:
        """Finds the shared state."""
        self._state = SharedState(self.app_name, policy)

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """The one replica that a request should go to; all of them where there is no such one."""
        replicas = {name_of(replica.replica_id): replica for replica in candidate_replicas}
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True  # else Serve asks again and again while none can be reached
        match pending_request.args if pending_request is not None else ():
            case [GenerateRequest() as request]:
                prompt = Prompt.of(request.prompt_ids, ExtraKey(request.adapter, request.cache_salt))
                name = await self._route(request.rid, prompt, list(replicas))
            case [str(name), *_]:
                pass
            case _:
                name = None
        return [[replicas[name]]] if name in replicas else [candidate_replicas]

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Those that are there no more are draining, or dead."""
        before = set(self.curr_replicas)
        super().update_replicas(replicas)
        if gone := before - set(self.curr_replicas):
            self._state.tell("drain", [name_of(replica_id) for replica_id in gone])

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        """A replica is dead."""
        super().on_replica_actor_died(replica_id)
        self._state.tell("leave", name_of(replica_id))

    async def _route(self, rid: str, prompt: Prompt, names: list[str]) -> str | None:
        try:
            async with asyncio.timeout(ROUTE_S):
                return await self._state.ask("route", rid, prompt, names)  # type: ignore[no-any-return]
        except (RayError, TimeoutError) as error:
            logger.warning("the router's state doesn't answer, a request goes where Ray Serve sends it: %r", error)
            return None
        except BaseException:  # cancelled on the way: it may be counted by now
            self._state.tell("ended", rid)
            raise


def name_of(replica_id: ReplicaID) -> str:
    """What a replica is called everywhere here."""
    return str(replica_id.unique_id)
