"""`radixserve serve`."""

import os
from dataclasses import replace
from typing import Annotated

from cyclopts import Group, Parameter

from radixserve.cli.options import API_KEY_VARIABLE, EngineFlags
from radixserve.config import EngineConfig, ReplicaConfig, ServerConfig
from radixserve.errors import ConfigError
from radixserve.replicas import settings
from radixserve.server.app import serve as run_server

ServerFlags = Annotated[ServerConfig, Parameter(name="*", group=Group("Server", sort_key=1))]
ReplicaFlags = Annotated[ReplicaConfig, Parameter(name="*", group=Group("Replicas", sort_key=3))]


def serve(
    *,
    engine: EngineFlags = EngineConfig(),  # noqa: B008 (all three are frozen)
    server: ServerFlags = ServerConfig(),  # noqa: B008
    replicas: ReplicaFlags = ReplicaConfig(),  # noqa: B008
) -> int:
    """Serves until it is told to stop; returns the exit code."""
    if server.api_key is None:
        server = replace(server, api_key=os.environ.get(API_KEY_VARIABLE))
    if not settings.wanted(replicas):
        return run_server(engine, server)
    if replicas.ray_address is None:
        os.environ.update(settings.own_ray_environment(os.environ))
    try:
        from radixserve.replicas.local import serve_replicas
    except ModuleNotFoundError as error:
        raise ConfigError(f"--replicas needs Ray, and {error.name} is missing: pip install 'ray[serve]>=2.60,<2.61'") from error
    return serve_replicas(engine, server, replicas)
