"""The decoder: token ids in, logits out. Llama, Mistral, Qwen2 and Qwen3 differ by flags of its config.

It knows neither cache nor requests: what a layer needs travels in the `ForwardBatch`, and attention reads and writes the KV pool.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch.nn.functional import silu

from radixserve.attention.backend import AttentionBackend
from radixserve.batch import ForwardBatch
from radixserve.errors import ModelError
from radixserve.models.checkpoint import Checkpoint
from radixserve.models.config import ModelConfig
from radixserve.models.layers import Linear, RMSNorm
from radixserve.models.rope import Rotation, inverse_frequencies, rotate, rotation
from radixserve.models.source import open_checkpoint

Read = Callable[[str], torch.Tensor]
"""A tensor of the checkpoint by name, in the model's dtype and on its device."""


class Attention:
    """Grouped attention. q, k and v come from one fused projection."""

    def __init__(self, config: ModelConfig, layer: int, read: Read) -> None:
        self._config = config
        self._layer = layer
        self._qkv = _fused(read, ("q_proj", "k_proj", "v_proj"), config.qkv_bias)
        self._output = _fused(read, ("o_proj",), config.output_bias)
        self._qk_norm = self._read_qk_norm(read) if config.qk_norm else None

    def _read_qk_norm(self, read: Read) -> RMSNorm:
        """One norm for the heads of q and k together: weight [num_heads + num_kv_heads, head_dim]."""
        config = self._config
        q_weight = read("q_norm.weight").expand(config.num_heads, -1)
        k_weight = read("k_norm.weight").expand(config.num_kv_heads, -1)
        return RMSNorm(torch.cat((q_weight, k_weight)), config.rms_norm_eps)

    def __call__(self, x: torch.Tensor, by: Rotation, attention: AttentionBackend, batch: ForwardBatch) -> torch.Tensor:
        config, num_tokens = self._config, x.shape[0]
        num_q, num_kv = config.num_heads, config.num_kv_heads
        heads = self._qkv(x).view(num_tokens, num_q + 2 * num_kv, config.head_dim)
        qk, v = torch.split_with_sizes(heads, (num_q + num_kv, num_kv), dim=1)
        if self._qk_norm is not None:
            qk = self._qk_norm(qk)
        q, k = torch.split_with_sizes(rotate(qk, by), (num_q, num_kv), dim=1)
        attended = attention.forward(q, k, v, self._layer, batch, scale=config.head_dim**-0.5, window=config.windows[self._layer])
        return self._output(attended.reshape(num_tokens, num_q * config.head_dim))


class MLP:
    """down(silu(gate(x)) * up(x)); gate and up are fused."""

    def __init__(self, config: ModelConfig, read: Read) -> None:
        self._gate_up = _fused(read, ("gate_proj", "up_proj"), config.mlp_bias)
        self._down = _fused(read, ("down_proj",), config.mlp_bias)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self._gate_up(x).chunk(2, dim=-1)
        return self._down(silu(gate) * up)


class Layer:
    """Attention and MLP, each behind a norm and added to the stream."""

    def __init__(self, config: ModelConfig, index: int, read: Read) -> None:
        self._attention_norm = RMSNorm(read("input_layernorm.weight"), config.rms_norm_eps)
        self._attention = Attention(config, index, lambda name: read("self_attn." + name))
        self._mlp_norm = RMSNorm(read("post_attention_layernorm.weight"), config.rms_norm_eps)
        self._mlp = MLP(config, lambda name: read("mlp." + name))

    def __call__(self, x: torch.Tensor, by: Rotation, attention: AttentionBackend, batch: ForwardBatch) -> torch.Tensor:
        x = x + self._attention(self._attention_norm(x), by, attention, batch)
        return x + self._mlp(self._mlp_norm(x))


@dataclass(frozen=True)
class Weights:
    """All that is read from a checkpoint; replaced as one."""

    embedding: torch.Tensor
    layers: tuple[Layer, ...]
    norm: RMSNorm
    head: Linear


class Decoder:
    """A model with its weights, on one device and in one dtype."""

    def __init__(self, config: ModelConfig, checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device) -> None:
        self.config = config
        self.dtype = dtype
        self.device = device
        self._frequencies = inverse_frequencies(config.rope, config.head_dim).to(device)
        self._weights = self._read(checkpoint)

    def forward(self, batch: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        """Runs one step; `attention` has planned it. The KV of its tokens is in the pool afterwards.

        Returns logits [R, vocab_size] of the tokens `batch.logits_rows`, float32 (float64 in a float64 model).
        """
        weights = self._weights
        by = rotation(batch.positions, self._frequencies, self.config.rope.attention_factor, self.dtype)
        x = weights.embedding[batch.input_ids]
        for layer in weights.layers:
            x = layer(x, by, attention, batch)
        logits = weights.head(weights.norm(x[batch.logits_rows]))
        return logits if logits.dtype == torch.float64 else logits.float()

    def load_weights(self, path: Path) -> None:
        """Replaces all weights by those of the model at `path` (a directory or a GGUF file), which must have the same shape.

        All or nothing: the old weights stay until the new ones are read. Until then there is memory for both. KV computed with the
        old weights is wrong afterwards; the caller drops it. Raises ModelError and changes nothing when the models differ.
        """
        config, checkpoint = open_checkpoint(path)
        if differing := _differences(self.config, config):
            raise ModelError(f"{path} has another shape than the loaded model: {', '.join(differing)}; start a new engine for it")
        self._weights = self._read(checkpoint)

    def _read(self, checkpoint: Checkpoint) -> Weights:
        def read(name: str) -> torch.Tensor:
            # A copy always: a mapped file may be overwritten while its model is served.
            return checkpoint.read(name).to(self.device, self.dtype, copy=True)

        config = self.config
        embedding = read("model.embed_tokens.weight")
        return Weights(
            embedding=embedding,
            layers=tuple(Layer(config, index, _within(read, f"model.layers.{index}.")) for index in range(config.num_layers)),
            norm=RMSNorm(read("model.norm.weight"), config.rms_norm_eps),
            head=Linear(embedding if config.tie_word_embeddings else read("lm_head.weight")),
        )


def _within(read: Read, prefix: str) -> Read:
    return lambda name: read(prefix + name)


def _fused(read: Read, names: tuple[str, ...], bias: bool) -> Linear:
    """One Linear for the projections `names`, whose outputs it returns side by side."""
    weight = torch.cat([read(f"{name}.weight") for name in names])
    return Linear(weight, torch.cat([read(f"{name}.bias") for name in names]) if bias else None)


def _differences(old: ModelConfig, new: ModelConfig) -> list[str]:
    """Fields that differ, but for those that neither the decoder nor the KV depends on."""
    new = replace(new, eos_ids=old.eos_ids, max_context_len=old.max_context_len)
    return [
        f"{name} {getattr(new, name)!r} instead of {getattr(old, name)!r}"
        for name in old.__dataclass_fields__
        if getattr(old, name) != getattr(new, name)
    ]
