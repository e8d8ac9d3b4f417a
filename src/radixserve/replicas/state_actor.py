"""The state as an actor of the cluster: one for each application and policy, made by whoever comes first.

It ends when nobody has called it for IDLE_S. Where it is lost, Ray starts it anew, empty, and the replicas join again.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import ray

from radixserve.replicas.state import RouterState

NAMESPACE = "radixserve"
IDLE_S = 60.0
CHECK_EVERY_S = 10.0


class _StateActor:
    """Calls are carried out one after another, each whole."""

    def __init__(self, policy: str) -> None:
        self._state = RouterState(policy)
        self._called_s = time.monotonic()
        self._ending: asyncio.Task[None] | None = None

    async def call(self, method: str, args: Sequence[Any]) -> Any:
        """Calls a method of RouterState."""
        self._called_s = time.monotonic()
        if self._ending is None:
            self._ending = asyncio.create_task(self._end_when_idle())
        return getattr(self._state, method)(*args)

    async def _end_when_idle(self) -> None:
        while time.monotonic() < self._called_s + IDLE_S:
            await asyncio.sleep(CHECK_EVERY_S)
        ray.kill(ray.get_runtime_context().current_actor)


class SharedState:
    """A way to the actor. Not to be sent to other processes: make one there."""

    def __init__(self, app_name: str, policy: str) -> None:
        options = {
            "name": f"{app_name}/{policy}",
            "namespace": NAMESPACE,
            "get_if_exists": True,
            "lifetime": "detached",
            "max_restarts": -1,
            "num_cpus": 0,
            "max_concurrency": 10_000,
        }
        self._actor = ray.remote(_StateActor).options(**options).remote(policy)

    async def ask(self, method: str, *args: Any) -> Any:
        """Calls a method of RouterState. Raises RayError when the actor can't be reached."""
        return await self._actor.call.remote(method, args)

    def tell(self, method: str, *args: Any) -> None:
        """The same without waiting, in the order of these calls; nothing happens where the actor can't be reached."""
        self._actor.call.remote(method, args)
