"""The memory that holds the KV of every slot, and nothing else: who owns a slot is the slot pool's and the tree's business.

Invariants: slots 0 .. page_size - 1 are the dummy page, which padding may write to and nobody reads; a slot's bytes change only
by `store` and `copy`. Slot numbers fit int32 (the slot table), offsets are 64-bit: indices are int64 before any arithmetic.
"""

import contextlib
import math
import mmap

import psutil
import torch

from radixserve.errors import ConfigError

MAX_SLOT = torch.iinfo(torch.int32).max


def slot_bytes(num_layers: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
    """Bytes that one slot costs: K and V of all layers."""
    return 2 * num_layers * num_kv_heads * head_dim * dtype.itemsize


class KVPool:
    """`k_buffer`, `v_buffer`: [num_layers, num_slots + page_size, num_kv_heads, head_dim] of `dtype` on `device`.

    `layers`: the two of each layer, views that are made once.
    """

    def __init__(
        self,
        num_layers: int,
        num_slots: int,
        page_size: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> None:
        """Raises ConfigError when the pool doesn't fit int32 slot numbers or the device's memory."""
        rows = num_slots + page_size
        if rows - 1 > MAX_SLOT:
            raise ConfigError(f"the KV pool has {num_slots} slots: slot numbers end at {MAX_SLOT}; lower --num-slots")
        self.num_slots = num_slots
        self.dtype = dtype
        self.nbytes = rows * slot_bytes(num_layers, num_kv_heads, head_dim, dtype)
        device = torch.device(device)
        shape = (num_layers, rows, num_kv_heads, head_dim)
        # Both buffers are written once, here. Memory that was never written is mapped at its first use: requests would pay the
        # page faults, a benchmark would read one shared page of zeros, and a lack of memory would show in the middle of serving.
        # fill_ and not zero_, which runs on one thread.
        try:
            self._check_free_memory(device)
            self.k_buffer = _empty(shape, dtype, device).fill_(0)
            self.v_buffer = _empty(shape, dtype, device).fill_(0)
        except (MemoryError, RuntimeError, OSError) as error:
            raise ConfigError(
                f"the KV pool of {num_slots} slots needs {self.nbytes / 2**30:.2f} GiB of memory on {device} "
                f"({self.nbytes // rows} bytes a slot): {str(error).splitlines()[0]}; lower --num-slots or --kv-cache-memory"
            ) from error
        self.layers = list(zip(self.k_buffer.unbind(), self.v_buffer.unbind(), strict=True))

    def store(self, layer: int, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        """Writes K and V of T tokens. `slots`: int64 [T], without duplicates; `k`, `v`: [T, num_kv_heads, head_dim]."""
        self.k_buffer[layer].index_copy_(0, slots, k.to(self.dtype))
        self.v_buffer[layer].index_copy_(0, slots, v.to(self.dtype))

    def copy(self, source_slots: torch.Tensor, target_slots: torch.Tensor) -> None:
        """Copies the KV of all layers from slots to slots (copy on write). int64 [n] each; all is read before it is written."""
        for buffer in (self.k_buffer, self.v_buffer):
            buffer.index_copy_(1, target_slots, buffer.index_select(1, source_slots))

    def _check_free_memory(self, device: torch.device) -> None:
        """A CPU's allocator promises more than there is, and the process would be killed on filling it."""
        free = psutil.virtual_memory().available
        if device.type == "cpu" and self.nbytes > free:
            raise MemoryError(f"{free / 2**30:.2f} GiB are free")


def _empty(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Memory for a tensor; for a CPU on huge pages, if the system grants them: scattered slots then miss the TLB less often."""
    if device.type != "cpu" or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(shape, dtype=dtype, device=device)
    memory = mmap.mmap(-1, math.prod(shape) * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # without huge pages the memory serves as it is
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype).view(shape)
