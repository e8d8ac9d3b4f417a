"""The decoder: token ids in, logits out. Llama, Mistral, Qwen2 and Qwen3 differ by flags of its config.

It knows neither cache nor requests: what a layer needs travels in the step that its operations prepared from a `ForwardBatch`, and
attention reads and writes the KV pool.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic

import torch

from radixserve.batch import ForwardBatch
from radixserve.cache.kv_pool import KVPool
from radixserve.errors import ModelError
from radixserve.models.adapter_checkpoint import AdapterCheckpoint, OpenAdapter
from radixserve.models.adapters import Adapters
from radixserve.models.checkpoint import Checkpoint
from radixserve.models.config import ModelConfig
from radixserve.models.operations import (
    AdapterLayer,
    Added,
    Embed,
    Head,
    Layer,
    LayerWeights,
    LinearWeights,
    Norm,
    Operations,
    Step,
    Stream,
    concat,
)
from radixserve.models.source import OpenModel, open_checkpoint

Read = Callable[[str], torch.Tensor]
"""A tensor of the checkpoint by name, in the model's dtype and on its device."""


@dataclass(frozen=True)
class Weights(Generic[Stream, Step, Added]):
    """All that is read from a checkpoint; replaced as one."""

    embed: Embed[Stream]
    layers: tuple[Layer[Stream, Step, Added], ...]
    head: Head[Stream]
    """The last norm and the head."""


class Decoder(Generic[Stream, Step, AdapterLayer, Added]):
    """A model with its weights, on one device and in one dtype, computed by one set of operations."""

    def __init__(
        self,
        path: Path,
        dtype: torch.dtype,
        device: torch.device,
        operations: Operations[Stream, Step, AdapterLayer, Added],
        opened: OpenModel = open_checkpoint,
        opened_adapter: OpenAdapter = AdapterCheckpoint,
    ) -> None:
        """`opened` gives the config and the weights of a path: of a whole model, or of the part that is to be computed here.

        `opened_adapter` gives the same of an adapter.
        """
        self.config, checkpoint = opened(path)
        self.dtype = dtype
        self.device = device
        self.operations = operations
        self._opened = opened
        self._weights = self._read(checkpoint)
        self.adapters = Adapters(self.config, dtype, device, operations, opened_adapter)

    def steps(self, pool: KVPool) -> Callable[[ForwardBatch], Step]:
        """What prepares each step over `pool` for `forward`."""
        return self.operations.steps(self.config, pool, self.dtype)

    def forward(self, batch: ForwardBatch, step: Step) -> Stream:
        """Runs one step, which `steps` prepared from `batch`. The KV of its tokens is in the pool afterwards.

        Returns the stream after the last layer, [T, hidden_size] in the form of its operations: `logits` takes rows of it.
        """
        weights = self._weights
        x = weights.embed(batch.input_ids)
        for layer, added in zip(weights.layers, self.adapters.added(batch), strict=True):
            x = layer(x, step, added)
        return x

    def logits(self, x: Stream, rows: torch.Tensor) -> torch.Tensor:
        """Logits [rows, vocab_size] of some rows of the stream, float32 (float64 in a float64 model). `rows`: int64."""
        logits = self._weights.head(x, rows)
        return logits if logits.dtype == torch.float64 else logits.float()

    def read_weights(self, path: Path) -> Weights[Stream, Step, Added]:
        """Reads the weights of the model at `path` (a directory or a GGUF file), which must have the same shape, for `put_weights`.

        Any thread may, while others compute. Until they are put there is memory for both. Raises ModelError when the models differ.
        """
        config, checkpoint = self._opened(path)
        if differing := _differences(self.config, config):
            raise ModelError(f"{path} has another shape than the loaded model: {', '.join(differing)}; start a new engine for it")
        return self._read(checkpoint)

    def put_weights(self, weights: Weights[Stream, Step, Added]) -> None:
        """Replaces all weights. KV computed with the old ones is wrong afterwards: the caller drops it."""
        self._weights = weights

    def _read(self, checkpoint: Checkpoint) -> Weights[Stream, Step, Added]:
        def read(name: str) -> torch.Tensor:
            # A copy always: a mapped file may be overwritten while its model is served.
            return checkpoint.read(name).to(self.device, self.dtype, copy=True)

        config, make = self.config, self.operations
        table = read("model.embed_tokens.weight")
        return Weights(
            embed=make.embedding(table),
            layers=tuple(
                make.layer(config, index, _layer_weights(config, _within(read, f"model.layers.{index}.")))
                for index in range(config.num_layers)
            ),
            head=make.head(
                Norm(read("model.norm.weight"), config.rms_norm_eps),
                LinearWeights(table if config.tie_word_embeddings else read("lm_head.weight")),
            ),
        )


AnyDecoder = Decoder[Any, Any, Any, Any]
"""By whichever operations: who holds one hands what `steps` and `forward` gave back to it, and doesn't look inside."""


def _within(read: Read, prefix: str) -> Read:
    return lambda name: read(prefix + name)


def _layer_weights(config: ModelConfig, read: Read) -> LayerWeights:
    eps = config.rms_norm_eps
    q_norm, k_norm = (Norm(read(f"self_attn.{name}_norm.weight"), eps) if config.qk_norm else None for name in "qk")
    return LayerWeights(
        attention_norm=Norm(read("input_layernorm.weight"), eps),
        qkv=concat(*(_linear(read, f"self_attn.{name}_proj", config.qkv_bias) for name in "qkv")),
        q_norm=q_norm,
        k_norm=k_norm,
        output=_linear(read, "self_attn.o_proj", config.output_bias),
        mlp_norm=Norm(read("post_attention_layernorm.weight"), eps),
        gate=_linear(read, "mlp.gate_proj", config.mlp_bias),
        up=_linear(read, "mlp.up_proj", config.mlp_bias),
        down=_linear(read, "mlp.down_proj", config.mlp_bias),
    )


def _linear(read: Read, name: str, bias: bool) -> LinearWeights:
    return LinearWeights(read(f"{name}.weight"), read(f"{name}.bias") if bias else None)


def _differences(old: ModelConfig, new: ModelConfig) -> list[str]:
    """Fields that differ, but for those that neither the decoder nor the KV depends on."""
    new = replace(new, eos_ids=old.eos_ids, max_context_len=old.max_context_len)
    return [
        f"{name} {getattr(new, name)!r} instead of {getattr(old, name)!r}"
        for name in old.__dataclass_fields__
        if getattr(old, name) != getattr(new, name)
    ]
