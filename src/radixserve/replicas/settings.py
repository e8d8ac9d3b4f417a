"""Which settings replicas can honour, and how those of one machine share it out. Nothing here needs Ray."""

import dataclasses
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path

import psutil

from radixserve.config import EngineConfig, ReplicaConfig, check_at_least
from radixserve.errors import ConfigError

POOL_BYTES = 4 << 30
"""Most that the pools of all replicas on one machine take by default."""

CONNECT_S = 5.0
"""What a cluster gets to answer."""

ONE_PLACE = ("record", "kv_events_endpoint", "kv_events_replay_endpoint")
"""Settings that name one place, which replicas can't share."""


def wanted(settings: ReplicaConfig) -> bool:
    """Whether there are replicas to be managed. Raises ConfigError for settings that make no sense."""
    check_at_least("replicas", settings.replicas, 1)
    several = settings.replicas > 1 or settings.ray_address is not None
    if not several and settings.router != ReplicaConfig.router:
        raise ConfigError(f"--router is {settings.router}: there is one engine to choose; add --replicas 2 or more")
    return several


def own_ray_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables for a Ray of this machine alone, to be set before Ray is imported.

    It listens on the loopback address, and asks for a token that is in no file, unless `environment` has one. Raises ConfigError
    where `environment` turns tokens off: any user of the machine could run code in that Ray.
    """
    mode = environment.get("RAY_AUTH_MODE", "token")
    if mode.lower() != "token":
        raise ConfigError(f"RAY_AUTH_MODE is {mode!r}: then whoever reaches Ray can run code as this user; unset it")
    variables = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # off on Linux too: no other machine can join
    if not environment.keys() & {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}:
        variables["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    return variables


def check(engine: EngineConfig) -> None:
    """Raises ConfigError for what replicas can't honour."""
    for name in ONE_PLACE:
        if getattr(engine, name) is not None:
            flag = f"--{name.replace('_', '-')}"
            raise ConfigError(f"{flag} is {getattr(engine, name)!r}: replicas can't share it; leave it out or --replicas 1")
    if engine.device.startswith("cuda:"):
        raise ConfigError(f"--device is {engine.device}: each replica gets a device of its own; say --device cuda")


def shared_out(engine: EngineConfig, num_replicas: int) -> EngineConfig:
    """The same settings for one of several replicas on this machine: its share of the memory, and paths that hold anywhere."""
    if engine.num_slots is None and engine.kv_cache_memory is None:
        num_bytes = min(psutil.virtual_memory().available // 2, POOL_BYTES) // num_replicas
        engine = dataclasses.replace(engine, kv_cache_memory=str(num_bytes))
    return with_absolute_paths(engine)


def with_absolute_paths(engine: EngineConfig) -> EngineConfig:
    """The same settings for a process that runs in another folder."""
    adapters = tuple(f"{name}={Path(folder).absolute()}" for name, _, folder in (text.partition("=") for text in engine.adapter))
    model = str(Path(engine.model).absolute()) if Path(engine.model).exists() else engine.model
    return dataclasses.replace(engine, model=model, adapter=adapters)


def check_cluster(address: str) -> None:
    """Raises ConfigError where nobody listens at `address`: Ray itself would try for two minutes."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(
            f"--ray-address is {address!r}: write HOST:PORT, such as 10.0.0.1:6379, or auto for this machine's cluster"
        )
    try:
        socket.create_connection((host, int(port)), CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(f"--ray-address is {address!r}: no cluster answers there: {error}") from error
