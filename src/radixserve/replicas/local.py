"""`radixserve serve --replicas N`: the HTTP server in this process, the replicas on a Ray of their own or on a cluster.

That Ray is started here, in the environment that `settings.own_ray_environment` makes, and ends with this process, whatever ends
it. Where that is a kill, two agents of Ray's that compute nothing stay for a minute or two: they tell a head that is gone.
"""

import logging
import os
from typing import Any

import ray
from ray import serve

from radixserve.config import EngineConfig, ReplicaConfig, ServerConfig
from radixserve.cpus import usable_cpus
from radixserve.errors import ConfigError
from radixserve.replicas import settings
from radixserve.replicas.application import replicas
from radixserve.replicas.fleet import Fleet
from radixserve.replicas.state_actor import SharedState
from radixserve.server import app

APP_NAME = "radixserve"
OBJECT_STORE_BYTES = 256 << 20
"""For messages too large to travel by themselves: prompts of more than 25,000 tokens."""

LOST_S = 10
"""How long this process lives on when its own Ray has lost the head."""

logger = logging.getLogger(__name__)


def serve_replicas(engine: EngineConfig, server: ServerConfig, config: ReplicaConfig) -> int:
    """Serves until SIGTERM or SIGINT; returns the process's exit code. See `app.serve`."""
    settings.check(engine)
    if config.ray_address is not None:
        settings.check_cluster(config.ray_address)
    return app.serve(engine, server, lambda: launch(engine, config))


def launch(engine: EngineConfig, config: ReplicaConfig) -> Fleet:
    """Starts the replicas and returns at once. Raises ConfigError where there is no Ray, or it has not what they need."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    _connect(config.ray_address)
    serve.start(proxy_location="Disabled")
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    if config.ray_address is None:
        actor_options: dict[str, Any] = {"num_cpus": int(usable_cpus() / config.replicas * 1e4) / 1e4}
        engine = settings.shared_out(engine, config.replicas)
    else:
        actor_options = {"num_cpus": (engine.num_threads or 1) * engine.tensor_parallel}
        engine = settings.with_absolute_paths(engine)
    actor_options["num_gpus"] = _gpus_each(engine, config.replicas)
    state = SharedState(APP_NAME, config.router)
    target = replicas(engine, config.router, num_replicas=config.replicas, ray_actor_options=actor_options)
    (handle,) = serve.run_many(
        [serve.RunTarget(target=target, name=APP_NAME, route_prefix=None)], wait_for_applications_running=False
    )
    return Fleet(handle, state, APP_NAME, _end if config.ray_address is None else _leave_cluster)


def _connect(address: str | None) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        logger.info("starting Ray on this machine")
        os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", str(LOST_S))  # its end is then the end of this process
        os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")  # it kills replicas when others on the machine take memory
        options |= {
            "address": "local",
            "include_dashboard": False,
            "num_cpus": usable_cpus(),
            "object_store_memory": OBJECT_STORE_BYTES,
        }
    try:
        ray.init(**{"address": address} | options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error.__cause__ or error).strip().splitlines()[0]
        where = "Ray can't be started on this machine" if address is None else f"--ray-address is {address!r}"
        raise ConfigError(f"{where}: {reason}") from error


def _gpus_each(engine: EngineConfig, num_replicas: int) -> int:
    """GPUs of one replica. Raises ConfigError when there are some, but too few."""
    there = int(ray.cluster_resources().get("GPU", 0))
    if engine.device == "cpu" or (engine.device == "auto" and not there):
        return 0
    needed = num_replicas * engine.tensor_parallel
    if there < needed:
        raise ConfigError(f"--replicas is {num_replicas}: needs {needed} GPUs and there are {there}; lower it or say --device cpu")
    return engine.tensor_parallel


def _end() -> None:
    ray.shutdown()


def _leave_cluster() -> None:
    serve.delete(APP_NAME)
    ray.shutdown()
