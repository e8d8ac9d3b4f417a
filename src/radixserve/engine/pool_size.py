"""How many tokens the KV pool holds: as asked, or as the memory gives."""

import re

import psutil
import torch

from radixserve.cache.kv_pool import slot_bytes
from radixserve.config import EngineConfig
from radixserve.errors import ConfigError
from radixserve.models.config import ModelConfig

CPU_POOL_BYTES = 4 << 30
"""Most that the pool takes by default on a CPU, whose memory others use too."""
CUDA_SHARE = 0.85
"""Of the free device memory, taken by default; the rest is for activations."""
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def choose_num_slots(
    config: EngineConfig, model: ModelConfig, own: ModelConfig, dtype: torch.dtype, device: torch.device, max_context_len: int
) -> int:
    """Tokens that the pool holds: as asked, or as many as the memory gives, at most what `max_running` full contexts need.

    Memory is that of a pool of the whole `model`. Ranks on a CPU share it; on CUDA each rank's device holds the KV heads of its
    `own` part. Whether that much memory is free the pool itself finds out (`KVPool`).
    """
    page_size = config.page_size
    per_slot = slot_bytes(model.num_layers, model.num_kv_heads, model.head_dim, dtype)
    if config.num_slots is not None:
        num_slots = config.num_slots
    elif config.kv_cache_memory is not None:
        num_slots = parse_bytes("--kv-cache-memory", config.kv_cache_memory) // per_slot
    else:
        default_bytes = _default_pool_bytes(device)
        if device.type == "cuda":
            default_bytes = default_bytes * model.num_kv_heads // own.num_kv_heads
        num_slots = min(default_bytes // per_slot, config.max_running * max_context_len)
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
