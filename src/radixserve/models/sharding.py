"""Which part of a model each rank has: a plan by the names of the weights, applied while they load.

Column: q, k, v, gate and up give each rank outputs of its own. Row: the output projection and down take what these gave as inputs,
and their results are summed over the ranks. Vocabulary: embedding and head have rows of it. Norms are everywhere. Heads are shared
out by KV head, as evenly as it goes; where there are fewer KV heads than ranks, several hold a KV head and share out its queries.

After Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism", section 3.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch

from radixserve.errors import ModelError
from radixserve.models.adapter_checkpoint import Adapter, AdapterCheckpoint
from radixserve.models.checkpoint import Checkpoint
from radixserve.models.config import ModelConfig
from radixserve.models.low_rank import LowRank
from radixserve.models.source import open_checkpoint

INNER_UNIT = 16
"""Outputs of gate and up that stay together, where their number allows it: the native kernels need it."""
PROJECTION = re.compile(r"(q|k|v|o|gate|up|down)_proj\.(weight|bias)$")


class Collectives(Protocol):
    """What the ranks of one model do together. All call the same with the same shapes, in the same order."""

    rank: int
    size: int

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum of all ranks' tensors, written to each rank's own, which is returned."""

    def gather(self, tensor: torch.Tensor, widths: list[int]) -> torch.Tensor:
        """On rank 0 all ranks' [R, widths[rank]] side by side; on the others their own, unchanged."""


@dataclass(frozen=True)
class Shard:
    """What one rank has of a model: half-open ranges of heads, of KV heads, of the MLP's inner outputs and of the vocabulary."""

    whole: ModelConfig
    rank: int
    size: int

    def __post_init__(self) -> None:
        """Raises ModelError where a rank would be left without a head or without a part of the MLP."""
        inner = self.whole.intermediate_size // self._unit
        for count, what in ((self.whole.num_heads, "query heads"), (inner, f"parts of {self._unit} in its MLP")):
            if self.size > count:
                raise ModelError(
                    f"--tensor-parallel is {self.size}: the model has {count} {what}, a rank needs one; ask for {count} or less"
                )

    @property
    def _unit(self) -> int:
        return 1 if self.whole.intermediate_size % INNER_UNIT else INNER_UNIT

    @property
    def kv_heads(self) -> range:
        num = self.whole.num_kv_heads
        if self.size <= num:
            return _part(num, self.rank, self.size)
        first = self.rank * num // self.size
        return range(first, first + 1)

    @property
    def heads(self) -> range:
        num, group = self.whole.num_kv_heads, self.whole.num_heads // self.whole.num_kv_heads
        kv_heads = self.kv_heads
        if self.size <= num:
            return range(kv_heads.start * group, kv_heads.stop * group)
        sharing = [rank for rank in range(self.size) if rank * num // self.size == kv_heads.start]
        part = _part(group, sharing.index(self.rank), len(sharing))
        return range(kv_heads.start * group + part.start, kv_heads.start * group + part.stop)

    @property
    def inner(self) -> range:
        return _times(_part(self.whole.intermediate_size // self._unit, self.rank, self.size), self._unit)

    @property
    def vocab(self) -> range:
        return _part(self.whole.vocab_size, self.rank, self.size)

    @property
    def config(self) -> ModelConfig:
        """The shape of the decoder that this rank runs. The vocabulary stays whole: so many are the logits."""
        return replace(self.whole, num_heads=len(self.heads), num_kv_heads=len(self.kv_heads), intermediate_size=len(self.inner))

    def cut(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """This rank's part of a weight, by its Hugging Face name; a view where that is enough."""
        if name in ("model.embed_tokens.weight", "lm_head.weight"):
            return _take(tensor, 0, self.vocab)
        found = PROJECTION.search(name)
        if found is None:
            return tensor
        projection, kind = found.groups()
        if projection in ("gate", "up", "down"):
            part = self.inner
        else:
            part = _times(self.kv_heads if projection in ("k", "v") else self.heads, self.whole.head_dim)
        if projection not in ("o", "down"):
            return _take(tensor, 0, part)
        if kind == "weight":
            return _take(tensor, 1, part)
        return tensor if self.rank == 0 else torch.zeros_like(tensor)  # the bias of a sum is added once

    def cut_addition(self, module: str, addition: LowRank) -> LowRank:
        """This rank's part of what an adapter adds to a module: the outputs of B, or, where the ranks sum, the inputs of A."""
        a, b = addition
        name = f"{module}.weight"
        return LowRank(self.cut(name, a), b) if module.endswith(("o_proj", "down_proj")) else LowRank(a, self.cut(name, b))

    def open(self, path: Path) -> tuple[ModelConfig, Checkpoint]:
        """`open_checkpoint` of this rank's part. Raises ModelError also for a model of another shape than the first."""
        whole, checkpoint = open_checkpoint(path)
        return replace(self, whole=whole).config, ShardedCheckpoint(checkpoint, replace(self, whole=whole))

    def open_adapter(self, directory: Path, own: ModelConfig) -> Adapter:
        """This rank's part of an adapter, which is for the whole model. Raises ModelError."""
        return ShardedAdapter(AdapterCheckpoint(directory, self.whole), self)


class ShardedAdapter:
    """The part of an adapter that one rank has."""

    def __init__(self, whole: Adapter, shard: Shard) -> None:
        self.config = whole.config
        self.modules = whole.modules
        self._whole = whole
        self._shard = shard

    def read(self, module: str, dtype: torch.dtype, device: torch.device) -> LowRank:
        return self._shard.cut_addition(module, self._whole.read(module, dtype, device))


class ShardedCheckpoint:
    """The part of a checkpoint that one rank has."""

    def __init__(self, checkpoint: Checkpoint, shard: Shard) -> None:
        self._checkpoint = checkpoint
        self._shard = shard

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Of the whole tensors, which are what the file was checked for."""
        return self._checkpoint.shapes

    def read(self, name: str) -> torch.Tensor:
        return self._shard.cut(name, self._checkpoint.read(name))


def _part(count: int, rank: int, size: int) -> range:
    """The rank's share of `count` things: no two shares differ by more than one."""
    return range(rank * count // size, (rank + 1) * count // size)


def _times(part: range, width: int) -> range:
    return range(part.start * width, part.stop * width)


def _take(tensor: torch.Tensor, dim: int, part: range) -> torch.Tensor:
    return tensor.narrow(dim, part.start, len(part))
