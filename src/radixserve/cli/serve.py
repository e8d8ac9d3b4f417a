"""`radixserve serve`."""

import os
from dataclasses import replace
from typing import Annotated

from cyclopts import Group, Parameter

from radixserve.cli.options import API_KEY_VARIABLE, EngineFlags
from radixserve.config import EngineConfig, ServerConfig
from radixserve.server.app import serve as run_server

ServerFlags = Annotated[ServerConfig, Parameter(name="*", group=Group("Server", sort_key=1))]


def serve(*, engine: EngineFlags = EngineConfig(), server: ServerFlags = ServerConfig()) -> int:  # noqa: B008 (both are frozen)
    """Serves until it is told to stop; returns the exit code."""
    if server.api_key is None:
        server = replace(server, api_key=os.environ.get(API_KEY_VARIABLE) or None)
    return run_server(engine, server)
