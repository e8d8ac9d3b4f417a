"""What one process loads of a model: all of it, or one rank's part. Everything but the pool, whose size the ranks agree on."""

import functools
import os
from dataclasses import dataclass
from pathlib import Path

import torch

from radixserve import heap, kernels
from radixserve.cache.kv_pool import KVPool, slot_bytes
from radixserve.config import EngineConfig
from radixserve.cpus import usable_cpus
from radixserve.engine.pool_size import choose_num_slots
from radixserve.engine.ranks.group import Group
from radixserve.errors import ConfigError
from radixserve.ipc import RankInfo
from radixserve.models.config import ModelConfig
from radixserve.models.decoder import AnyDecoder
from radixserve.models.generation_config import read_sampling_defaults
from radixserve.models.loader import choose_dtype, choose_operations, load_model
from radixserve.models.registry import resolve
from radixserve.models.sharding import Shard
from radixserve.models.source import load_config
from radixserve.models.vocabulary import SplitVocabulary
from radixserve.sampling.grammar_llguidance import LLGuidance
from radixserve.sampling_defaults import SamplingDefaults
from radixserve.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class LoadedModel:
    """Of one rank. `model` is the shape of the whole model, `decoder.config` that of the part that is here."""

    config: EngineConfig
    path: Path
    model: ModelConfig
    decoder: AnyDecoder
    tokenizer: Tokenizer
    sampling_defaults: SamplingDefaults
    kernels: str
    """What computes, and why."""
    max_context_len: int
    num_threads: int
    group: Group | None
    """The ranks, which have not met yet; None where there is one."""

    @property
    def eos_ids(self) -> frozenset[int]:
        return self.tokenizer.eos_ids | frozenset(self.model.eos_ids)

    @property
    def num_slots(self) -> int:
        """Tokens that a pool may hold, by the settings and by the memory of this process. Raises ConfigError."""
        decoder = self.decoder
        return choose_num_slots(self.config, self.model, decoder.config, decoder.dtype, decoder.device, self.max_context_len)

    def make_pool(self, num_slots: int) -> KVPool:
        """A pool of this rank's KV heads. Raises ConfigError."""
        own, decoder = self.decoder.config, self.decoder
        page_size = self.config.page_size
        return KVPool(own.num_layers, num_slots, page_size, own.num_kv_heads, own.head_dim, decoder.dtype, decoder.device)

    def kv_bytes(self, num_slots: int) -> int:
        """Of the tokens that such a pool of this rank holds."""
        own = self.decoder.config
        return num_slots * slot_bytes(own.num_layers, own.num_kv_heads, own.head_dim, self.decoder.dtype)

    def load_grammar_compiler(self) -> LLGuidance:
        return LLGuidance(self.tokenizer, self.model.vocab_size, self.eos_ids)

    def rank_info(self, rank: int, num_slots: int) -> RankInfo:
        """What /server_info says of this process."""
        own = self.decoder.config
        return RankInfo(rank, os.getpid(), str(self.decoder.device), own.num_heads, own.num_kv_heads, self.kv_bytes(num_slots))


def check_split(config: EngineConfig) -> None:
    """Refuses what can't be split before a process is started, and brings the model, once for all. Raises ConfigError."""
    Shard(load_config(Path(resolve(config.model))), 0, config.tensor_parallel)
    choose_device(config.device, 0, config.tensor_parallel)


def load_rank(config: EngineConfig, rank: int = 0) -> LoadedModel:
    """Loads what rank `rank` of `config.tensor_parallel` has. Raises ConfigError (ModelError for the model) with a remedy."""
    size = config.tensor_parallel
    num_threads = config.num_threads or max(usable_cpus() // size, 1)
    torch.set_num_threads(num_threads)
    kernels.set_num_threads(num_threads)
    path = Path(resolve(config.model))
    device = choose_device(config.device, rank, size)
    dtype = choose_dtype(config.dtype, device)
    tokenizer = Tokenizer.load(path)
    model = load_config(path)
    sampling_defaults = read_sampling_defaults(path) if config.sampling_defaults == "model" else SamplingDefaults()
    choose = functools.partial(choose_operations, config.kernels, model, dtype, device, config.quantization)
    if size == 1:
        group = None
        operations, why = choose()
        decoder = load_model(path, dtype, device, operations)
    else:
        group = Group(rank, size, device)
        shard = Shard(model, rank, size)
        inner, why = choose(group.sum)
        decoder = load_model(path, dtype, device, SplitVocabulary(inner, group, shard), shard.open, shard.open_adapter)
    heap.trim()  # the pool is sized by what is free
    max_context_len = config.max_context_len or model.max_context_len
    if max_context_len > model.max_context_len:
        raise ConfigError(
            f"--max-context-len is {max_context_len}: {config.model} was made for {model.max_context_len}; ask for that or less"
        )
    return LoadedModel(config, path, model, decoder, tokenizer, sampling_defaults, why, max_context_len, num_threads, group)


def choose_device(name: str, rank: int = 0, size: int = 1) -> torch.device:
    """`auto` is CUDA when there is one; of several ranks each has a CUDA device. Raises ConfigError for one that is not there."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        if device.type == "cuda" and size > 1:
            device = _device_of(rank, size, device)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"--device is {name!r}: {str(error).splitlines()[0]}; try --device cpu") from error
    return device


def _device_of(rank: int, size: int, device: torch.device) -> torch.device:
    if device.index is not None:
        raise ConfigError(
            f"--device is {device} and --tensor-parallel {size}: each rank takes a device of its own; use --device cuda"
        )
    if size > (count := torch.cuda.device_count()):
        raise ConfigError(f"--tensor-parallel is {size}: there are {count} CUDA devices, one a rank; ask for {count} or less")
    torch.cuda.set_device(rank)
    return torch.device("cuda", rank)
