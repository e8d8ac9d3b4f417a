"""Builds an engine by its config. With `tensor_parallel`, this process is rank 0 and the others are started from here."""

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from radixserve.cache.kv_pool import KVPool
from radixserve.config import EngineConfig, check_at_least
from radixserve.engine.assemble import assemble
from radixserve.engine.engine import Engine
from radixserve.engine.grammars import Grammars
from radixserve.engine.loaded_model import LoadedModel, check_split, load_rank
from radixserve.engine.model_runner import ModelRunner
from radixserve.engine.ranks.leader import Leader
from radixserve.engine.ranks.runners import LeadingRunner
from radixserve.engine.ranks.weights import LeadingAdapters, LeadingWeights
from radixserve.engine.recording import Recorder
from radixserve.engine.weights import DecoderWeights
from radixserve.errors import ConfigError
from radixserve.ipc import EngineInfo, LoadAdapter, RequestFailed
from radixserve.limits import Limits
from radixserve.observe.kv_publisher import KVPublisher
from radixserve.observe.observer import Observer
from radixserve.sampling.grammar_trial import GrammarTrial
from radixserve.validation import type_fault


def build_engine(config: EngineConfig) -> Engine:
    """Loads the model and returns an idle engine. Raises ConfigError (ModelError for the model) with a one-line remedy.

    Raises RankError where another rank's process ends before it is ready.
    """
    check_settings(config)
    adapters = parse_adapters(config.adapter)
    publisher = make_publisher(config)
    leader = None
    if config.tensor_parallel > 1:
        check_split(config)
        leader = Leader(config)
    try:
        loaded = load_rank(config)
        num_slots = loaded.num_slots if leader is None else leader.agree(loaded.num_slots)
        pool = loaded.make_pool(num_slots)
        engine = _make_engine(loaded, pool, publisher, leader)
        if leader is not None:
            _lead(engine, leader, loaded, pool)
        engine.observer = Observer(engine.scheduler, config.eviction_policy, publisher.publish if publisher is not None else None)
        if config.record is not None:
            engine.recorder = Recorder(Path(config.record), engine.info, real_tokens=config.record_text)
        load_adapters(engine, adapters)
    except BaseException:
        if leader is not None:
            leader.close()
        raise
    return engine


def make_info(loaded: LoadedModel, pool: KVPool) -> EngineInfo:
    """What an engine of these loaded is."""
    return EngineInfo(
        model=loaded.config.model,
        dtype=str(loaded.decoder.dtype).removeprefix("torch."),
        device=str(loaded.decoder.device),
        limits=Limits(loaded.model.vocab_size, loaded.max_context_len, pool.num_slots, loaded.config.page_size),
        kv_bytes=loaded.kv_bytes(pool.num_slots),
        num_threads=loaded.num_threads,
        settings=dataclasses.asdict(loaded.config),
        adapters=parse_adapters(loaded.config.adapter),
        kernels=loaded.kernels,
        sampling_defaults=loaded.sampling_defaults,
    )


def _make_engine(loaded: LoadedModel, pool: KVPool, publisher: KVPublisher | None, leader: Leader | None) -> Engine:
    config, info = loaded.config, make_info(loaded, pool)
    if publisher is not None:
        info = msgspec.structs.replace(info, settings=info.settings | publisher.endpoints)
    adapters, weights = loaded.decoder.adapters, DecoderWeights(loaded.decoder)
    trial = GrammarTrial(loaded.path, loaded.model.vocab_size, loaded.eos_ids)
    grammars = Grammars(loaded.load_grammar_compiler, trial=trial, jump_forward=config.jump_forward)
    runner = ModelRunner(loaded.decoder, pool)
    if leader is None:
        return assemble(config, info, runner, loaded.tokenizer, loaded.eos_ids, grammars, adapters, weights)
    leading = LeadingAdapters(adapters, leader), LeadingWeights(weights, leader)
    return assemble(config, info, runner, loaded.tokenizer, loaded.eos_ids, grammars, *leading)


def _lead(engine: Engine, leader: Leader, loaded: LoadedModel, pool: KVPool) -> None:
    """Makes an engine the first of its ranks."""
    assert loaded.group is not None
    ranks = (loaded.rank_info(0, pool.num_slots), *leader.gather(loaded.group, pool.num_slots))
    engine.info = msgspec.structs.replace(engine.info, ranks=ranks, kv_bytes=sum(rank.kv_bytes for rank in ranks))
    engine.runner = LeadingRunner(engine.runner, leader, engine.cache)
    engine.leader = leader


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
    read = threading.Event()
    engine.notify(read.set)
    for name, directory in adapters.items():
        engine.receive(LoadAdapter("", name, directory))
        while not (answers := engine.step()):
            read.wait()
            read.clear()
        if isinstance(answers[0], RequestFailed):
            raise ConfigError(f"--adapter: {answers[0].message}")


def check_settings(config: EngineConfig) -> None:
    """Raises ConfigError for the first setting that makes no sense, before anything is loaded."""
    if fault := type_fault(dataclasses.asdict(config), EngineConfig):
        name, reason = fault
        raise ConfigError(f"--{name.replace('_', '-')} is {getattr(config, name)!r}: {reason}")
    for name in ("tensor_parallel", "page_size", "max_running", "max_batch_tokens", "max_passed_over"):
        check_at_least(name, getattr(config, name), 1)
    check_at_least("decode_reserve", config.decode_reserve, 0)
    if not config.engine_timeout_s > 0:  # written so that NaN fails too
        raise ConfigError(f"--engine-timeout-s is {config.engine_timeout_s:g}: must be above 0")
    for name in ("num_threads", "max_context_len", "num_slots"):
        if getattr(config, name) is not None:
            check_at_least(name, getattr(config, name), 1)
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
