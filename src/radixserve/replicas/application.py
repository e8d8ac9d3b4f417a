"""The applications of Ray Serve: replicas alone, for a front in the caller's process, or replicas and fronts, for a cluster.

`radixserve.replicas.application:build` is what a config file of Serve imports; `docs/replicas.md` has one.
"""

import dataclasses
from typing import Any

import msgspec
from ray import serve
from ray.serve import Application
from ray.serve.config import RequestRouterConfig
from ray.serve.handle import DeploymentHandle
from starlette.applications import Starlette

from radixserve.config import EngineConfig, ReplicaConfig, ServerConfig
from radixserve.errors import ConfigError
from radixserve.models.registry import resolve
from radixserve.observe.metrics import Metrics
from radixserve.replicas.engine_replica import EngineReplica
from radixserve.replicas.fleet import DEPLOYMENT, Fleet
from radixserve.replicas.request_router import PrefixRequestRouter
from radixserve.replicas.state_actor import SharedState
from radixserve.server.app import check, make_app
from radixserve.server.middleware.gate import Gate
from radixserve.server.service import Service
from radixserve.text.tokenizer import Tokenizer

MAX_ONGOING = 100_000
"""Requests at one replica or front: more than there ever are. The engine queues, the router weighs its queue."""
DRAIN_S = 600.0
"""What a replica that leaves gets to finish its requests."""
HEALTH_EVERY_S = 1.0
STATS_EVERY_S = 1.0


def replicas(engine: EngineConfig, policy: str, **options: Any) -> Application:
    """The engines. `options`: of Serve's deployment."""
    router = RequestRouterConfig(
        request_router_class=PrefixRequestRouter,
        request_router_kwargs={"policy": policy},
        request_routing_stats_period_s=STATS_EVERY_S,
    )
    deployment = serve.deployment(
        EngineReplica,
        name=DEPLOYMENT,
        max_ongoing_requests=MAX_ONGOING,
        graceful_shutdown_timeout_s=DRAIN_S,
        graceful_shutdown_wait_loop_s=HEALTH_EVERY_S,
        health_check_period_s=HEALTH_EVERY_S,
        request_router_config=router,
        max_constructor_retry_count=1,
    )
    return deployment.options(**options).bind(engine, policy)


@serve.ingress()
class Front:
    """The HTTP server's own app, behind Serve's proxy."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self, handle: DeploymentHandle, engine: EngineConfig, server: ServerConfig, policy: str
    ) -> None:
        """Returns when all replicas are ready."""
        app_name = serve.get_replica_context().app_name
        fleet = Fleet(handle, SharedState(app_name, policy), app_name, lambda: None)
        tokenizer = Tokenizer.load(resolve(engine.model))
        info = await fleet.start(engine)
        self._service = Service(fleet, info, tokenizer, server, Metrics(fleet.collector), Gate(server.max_open_requests))

    def __serve_build_asgi_app__(self) -> Starlette:
        return make_app(self._service)


def build(args: dict[str, Any]) -> Application:
    """Replicas and a front. `args`: settings by their names in `radixserve.config`, under `engine` and `server`, and `router`.

    Raises ConfigError for one that isn't known.
    """
    try:
        engine = msgspec.convert(args.get("engine", {}), EngineConfig)
        server = msgspec.convert({"host": "0.0.0.0"} | args.get("server", {}), ServerConfig)
        policy = msgspec.convert({"router": args.get("router", "prefix")}, ReplicaConfig).router
    except msgspec.ValidationError as error:
        raise ConfigError(f"the application's args can't be read: {error}") from error
    check(server)
    known = {"engine", "server", "router"}
    for name, given, config in (("args", args, None), ("engine", args.get("engine", {}), engine)):
        fields = known if config is None else {field.name for field in dataclasses.fields(config)}
        if unknown := given.keys() - fields:
            raise ConfigError(f"{name} has {', '.join(sorted(unknown))}: known are {', '.join(sorted(fields))}")
    return serve.deployment(Front, max_ongoing_requests=MAX_ONGOING).bind(replicas(engine, policy), engine, server, policy)
