"""Loads what an engine needs, by its config: model, tokenizer, pool. The one place that knows every part."""

import dataclasses
import functools
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import torch

from radixserve import kernels
from radixserve.cache.kv_pool import KVPool, slot_bytes
from radixserve.config import EngineConfig
from radixserve.engine.assemble import assemble
from radixserve.engine.engine import Engine
from radixserve.engine.grammars import Grammars
from radixserve.engine.model_runner import ModelRunner
from radixserve.engine.recording import Recorder
from radixserve.errors import ConfigError
from radixserve.limits import Limits
from radixserve.messages import EngineInfo, LoadAdapter, RequestFailed
from radixserve.models.config import ModelConfig
from radixserve.models.loader import choose_dtype, choose_operations, load_model
from radixserve.models.registry import resolve
from radixserve.models.source import load_config
from radixserve.observe.kv_publisher import KVPublisher
from radixserve.observe.observer import Observer
from radixserve.sampling.grammar import find_backend
from radixserve.sampling.grammar_trial import GrammarTrial
from radixserve.text.tokenizer import Tokenizer
from radixserve.typed import type_fault

CPU_POOL_BYTES = 4 << 30
"""Most that the pool takes by default on a CPU, whose memory others use too."""
CUDA_SHARE = 0.85
"""Of the free device memory, taken by default; the rest is for activations."""
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def build_engine(config: EngineConfig) -> Engine:
    """Loads the model and returns an idle engine. Raises ConfigError (ModelError for the model) with a one-line remedy."""
    check_settings(config)
    adapters = parse_adapters(config.adapter)
    publisher = make_publisher(config)
    num_threads = config.num_threads or len(os.sched_getaffinity(0))
    torch.set_num_threads(num_threads)
    kernels.set_num_threads(num_threads)
    path = Path(resolve(config.model))
    device = choose_device(config.device)
    dtype = choose_dtype(config.dtype, device)
    tokenizer = Tokenizer.load(path)
    operations, why = choose_operations(config.kernels, load_config(path), dtype, device, config.quantization)
    decoder = load_model(path, dtype, device, operations)
    model = decoder.config
    max_context_len = config.max_context_len or model.max_context_len
    if max_context_len > model.max_context_len:
        raise ConfigError(
            f"--max-context-len is {max_context_len}: {config.model} was made for {model.max_context_len}; ask for that or less"
        )
    num_slots = choose_num_slots(config, model, dtype, device, max_context_len)
    pool = KVPool(model.num_layers, num_slots, config.page_size, model.num_kv_heads, model.head_dim, dtype, device)
    info = EngineInfo(
        model=config.model,
        dtype=str(dtype).removeprefix("torch."),
        device=str(device),
        limits=Limits(model.vocab_size, max_context_len, num_slots, config.page_size),
        kv_bytes=num_slots * slot_bytes(model.num_layers, model.num_kv_heads, model.head_dim, dtype),
        num_threads=num_threads,
        settings=dataclasses.asdict(config) | (publisher.endpoints if publisher is not None else {}),
        adapters=adapters,
        kernels=why,
    )
    eos_ids = tokenizer.eos_ids | frozenset(model.eos_ids)
    load_backend = functools.partial(find_backend(config.grammar_backend), tokenizer, model.vocab_size, eos_ids)
    trial = GrammarTrial(config.grammar_backend, path, model.vocab_size, eos_ids)
    grammars = Grammars(load_backend, trial=trial, jump_forward=config.jump_forward)
    runner = ModelRunner(decoder, operations.backend(pool), pool)
    engine = assemble(config, info, runner, tokenizer, eos_ids, grammars, decoder.adapters)
    engine.observer = Observer(engine.scheduler, config.eviction_policy, publisher.publish if publisher is not None else None)
    if config.record is not None:
        engine.recorder = Recorder(Path(config.record), info, real_tokens=config.record_text)
    load_adapters(engine, adapters)
    return engine


def parse_adapters(texts: Sequence[str]) -> dict[str, str]:
    """NAME=DIR each, as directories by name. Raises ConfigError naming the flag."""
    adapters: dict[str, str] = {}
    for text in texts:
        name, _, directory = text.partition("=")
        if not name or not directory:
            raise ConfigError(f"--adapter is {text!r}: write NAME=DIR, such as sql=./sql-lora")
        if name in adapters:
            raise ConfigError(f"--adapter names {name!r} twice: give each a name of its own")
        adapters[name] = directory
    return adapters


def load_adapters(engine: Engine, adapters: Mapping[str, str]) -> None:
    """Loads what is served from the start: messages like any later ones. Raises ConfigError for one that can't be had."""
    for name, directory in adapters.items():
        engine.receive(LoadAdapter("", name, directory))
    for answer in engine.step() if adapters else []:
        if isinstance(answer, RequestFailed):
            raise ConfigError(f"--adapter: {answer.message}")


def check_settings(config: EngineConfig) -> None:
    """Raises ConfigError for the first setting that makes no sense, before anything is loaded."""
    if fault := type_fault(dataclasses.asdict(config), EngineConfig):
        name, reason = fault
        raise ConfigError(f"--{name.replace('_', '-')} is {getattr(config, name)!r}: {reason}")
    for name in ("page_size", "max_running", "max_batch_tokens", "max_passed_over"):
        _at_least(name, getattr(config, name), 1)
    _at_least("decode_reserve", config.decode_reserve, 0)
    for name in ("num_threads", "max_context_len", "num_slots"):
        if getattr(config, name) is not None:
            _at_least(name, getattr(config, name), 1)
    if config.num_slots is not None and config.num_slots < config.page_size:
        raise ConfigError(
            f"--num-slots is {config.num_slots}, less than one page of {config.page_size}: raise it or lower --page-size"
        )


def make_publisher(config: EngineConfig) -> KVPublisher | None:
    """The publisher of KV events, if one is asked for. Raises ConfigError for an address that can't be had."""
    endpoint, replay_endpoint = config.kv_events_endpoint, config.kv_events_replay_endpoint
    if endpoint is None:
        if replay_endpoint is not None:
            raise ConfigError(f"--kv-events-replay-endpoint is {replay_endpoint!r}: it needs --kv-events-endpoint too")
        return None
    return KVPublisher(endpoint, replay_endpoint, config.kv_events_topic)


def choose_device(name: str) -> torch.device:
    """`auto` is CUDA when there is one. Raises ConfigError for a device that is not there."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"--device is {name!r}: {str(error).splitlines()[0]}; try --device cpu") from error
    return device


def choose_num_slots(
    config: EngineConfig, model: ModelConfig, dtype: torch.dtype, device: torch.device, max_context_len: int
) -> int:
    """Tokens that the pool holds: as asked, or as many as the memory gives, at most what `max_running` full contexts need.

    Whether that much memory is free the pool itself finds out (`KVPool`).
    """
    page_size = config.page_size
    per_slot = slot_bytes(model.num_layers, model.num_kv_heads, model.head_dim, dtype)
    if config.num_slots is not None:
        num_slots = config.num_slots
    elif config.kv_cache_memory is not None:
        num_slots = parse_bytes("--kv-cache-memory", config.kv_cache_memory) // per_slot
    else:
        num_slots = min(_default_pool_bytes(device) // per_slot, config.max_running * max_context_len)
    num_slots = num_slots // page_size * page_size
    if num_slots < page_size:
        raise ConfigError(
            f"the KV pool would hold {num_slots} tokens: one needs {per_slot} bytes, a page {per_slot * page_size}; "
            "raise --kv-cache-memory or --num-slots"
        )
    return num_slots


def _default_pool_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0] * CUDA_SHARE)
    return min(psutil.virtual_memory().available // 2, CPU_POOL_BYTES)


def parse_bytes(name: str, text: str) -> int:
    """'2GiB', '500 MB' or '1000000' in bytes. Raises ConfigError naming the flag."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    unit = UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None:
        raise ConfigError(f"{name} is {text!r}: write a number and a unit, such as 2GiB or 500MB")
    return int(float(match[1]) * unit)


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigError(f"--{name.replace('_', '-')} is {value}: must be at least {least}")
