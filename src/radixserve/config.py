"""Every setting, in two frozen classes.

The string under each field is its help: the command line shows it and `docs/configuration.md` is generated from it. A value of
None means "decided at start from the model and the machine"; what was decided is printed.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from radixserve.errors import ConfigError

Dtype = Literal["auto", "float64", "float32", "bfloat16", "float16"]
Kernels = Literal["auto", "native", "torch"]
Quantization = Literal["none", "int8"]
Order = Literal["prefix", "tree", "fcfs"]


def check_at_least(name: str, value: int, least: int) -> None:
    """Raises ConfigError naming the flag of the setting `name` when its value is too small."""
    if value < least:
        raise ConfigError(f"--{name.replace('_', '-')} is {value}: must be at least {least}")


def check_can_write(name: str, path: Path | None) -> None:
    """Raises ConfigError naming the flag of the setting `name` when no file can be written at `path`. Call it before the work."""
    if path is None:
        return
    folder, fault = path.parent, None
    if not folder.is_dir():
        fault = f"there is no folder {folder}"
    elif path.is_dir():
        fault = "it is a folder"
    elif not os.access(path if path.exists() else folder, os.W_OK):
        fault = "permission denied"
    if fault is not None:
        raise ConfigError(f"--{name.replace('_', '-')} {path} can't be written: {fault}")


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """Model, cache and scheduler."""

    model: str = "smollm2-135m"
    """Name of a built-in model, a Hugging Face directory or hub name, or a GGUF file."""

    dtype: Dtype = "auto"
    """Of weights and KV. auto: bfloat16 on CPUs with native support and on CUDA, else float32."""

    device: str = "auto"
    """Where the model runs: cpu, cuda, cuda:1. auto: cuda when there is one."""

    kernels: Kernels = "auto"
    """native (bfloat16 on a CPU; answers do not depend on cache or batch, to the last bit) or torch. auto: native where it can."""

    quantization: Quantization = "none"
    """int8: products of the layers in int8, faster and less exact, by the native kernels only. none: weights as they are."""

    sampling_defaults: Literal["model", "neutral"] = "model"
    """Of requests that don't say how to sample. model: as in its generation_config.json or GGUF header; neutral: all 1 or off."""

    adapter: tuple[str, ...] = ()
    """NAME=DIR: serve the LoRA adapter in this PEFT directory too, as the model NAME. May be given again for more."""

    tensor_parallel: int = 1
    """Processes (ranks) that the model is split over, at most one a query head; on CUDA each takes a device of its own."""

    num_threads: int | None = None
    """Threads of the model on a CPU, in each rank; by default the ranks share out the CPUs of affinity mask and cgroup quota."""

    max_context_len: int | None = None
    """Longest prompt plus answer, in tokens; by default what the model was trained for."""

    num_slots: int | None = None
    """Size of the KV pool in tokens; by default from --kv-cache-memory."""

    kv_cache_memory: str | None = None
    """Memory of the KV pool, such as 2GiB; by default half of what is free after loading, at most 4GiB (on CUDA 85%)."""

    page_size: int = 1
    """Tokens a page. Matches round down to pages; 1 reuses every token."""

    prefix_cache: bool = True
    """Keep the KV of finished requests in the radix tree and reuse it."""

    eviction_policy: str = "lru"
    """Which unlocked leaf goes first when the pool is full: lru, lfu, fifo, slru, priority or learned."""

    jump_forward: bool = True
    """Append the tokens that a grammar leaves no choice about without a step of the model each."""

    order: Order = "prefix"
    """Order of admission: prefix (fewest tokens to compute first), tree (depth first, heaviest branch first) or fcfs."""

    max_running: int = 64
    """Requests that run at once, at most as many as --max-batch-tokens: each running one gets a token a step. More wait."""

    max_batch_tokens: int = 512
    """Tokens computed in one step: decodes first, then chunks of prompts."""

    max_passed_over: int = 32
    """Later arrivals that may be admitted before a waiting request; then nothing overtakes it."""

    decode_reserve: int = 256
    """Slots kept free for each running request's answer (at most what it may still generate) when another is admitted."""

    engine_timeout_s: float = 300.0
    """Seconds that a server's engine may answer nothing: then new requests and /health get 503. A step takes less."""

    record: str | None = None
    """Write what the engine takes in to this new file, for `radixserve simulate`: lengths, times and salted token ids, no text."""

    record_text: bool = False
    """Write the real token ids to the recording, from which the texts can be read."""

    kv_events_endpoint: str | None = None
    """Publish over ZMQ which pages the cache holds, token ids included, at this address, such as tcp://127.0.0.1:5557."""

    kv_events_replay_endpoint: str | None = None
    """Where subscribers ask again for KV events that they missed."""

    kv_events_topic: str = ""
    """Topic of the KV events."""


@dataclass(frozen=True, kw_only=True)
class ReplicaConfig:
    """Several engines behind one address."""

    replicas: int = 1
    """Engines with a cache each that share the requests; for more than one: pip install 'ray[serve]>=2.60,<2.61'."""

    router: Literal["prefix", "round-robin", "least-loaded", "random"] = "prefix"
    """Which replica gets a request. prefix: the one that has to compute least for it, weighed against what is queued there."""

    ray_address: str | None = None
    """Run the replicas on this Ray cluster, such as 10.0.0.1:6379; by default on this machine, with a Ray of their own."""


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """The HTTP server."""

    host: str = "127.0.0.1"
    """Address to listen on."""

    port: int = 8000
    """Port to listen on."""

    api_key: str | None = None
    """Key that clients must send as a bearer token; also read from RADIXSERVE_API_KEY."""

    allowed_host: tuple[str, ...] = ()
    """Name that a server without --api-key is asked by, apart from localhost and addresses; "*" is any. May be given again."""

    served_model_name: str | None = None
    """Name of the model in the API; by default the --model value."""

    max_body_bytes: int = 16 * 1024 * 1024
    """Largest request body; a larger one gets 413."""

    body_timeout_s: float = 120.0
    """Seconds that a request's body may take to arrive; then 408."""

    header_timeout_s: float = 30.0
    """Seconds that a request's line and headers may take to arrive, and a new connection may say nothing; then 408, or the end."""

    max_connections: int = 20_000
    """Connections that are open at once; more get 503. The system's limit of open files may be lower."""

    response_store_bytes: int = 256 * 1024 * 1024
    """Conversations of /v1/responses kept in memory for previous_response_id, in bytes; the oldest go first. 0 keeps none."""

    max_open_requests: int = 16_384
    """HTTP requests that wait or are answered at once; more get 503."""

    grace_s: float = 30.0
    """Seconds that accepted requests get to finish after SIGTERM."""

    ui: Literal["auto", "on", "off"] = "auto"
    """Live page and its data, which show prompts. auto: where only this machine can connect, or --api-key is set."""

    ui_redact: bool = False
    """Hide all text on the live page and in its data."""

    tool_parser: Literal["auto", "hermes", "llama3", "mistral", "pythonic"] = "auto"
    """Form of the model's tool calls. auto: the one its chat template speaks of, else hermes, which the model is then taught."""

    reasoning_parser: Literal["auto", "think", "none"] = "auto"
    """think: what the model writes in <think> is reasoning, apart from its answer. auto: where the chat template speaks of it."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """What is logged; info has one line a request."""
