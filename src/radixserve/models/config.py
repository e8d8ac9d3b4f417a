"""The shape of a model: everything the decoder must know besides the weights, whatever file it was read from.

One decoder serves all families; what differs between them is a field here. The readers are `hf_config` and `gguf_config`.
"""

from dataclasses import dataclass
from typing import Literal

from radixserve.errors import ModelError

RopeType = Literal["default", "linear", "llama3", "yarn"]


@dataclass(frozen=True, kw_only=True)
class RopeConfig:
    """Rotary position embedding. Fields after `rope_type` count only for the types that use them."""

    theta: float
    rope_type: RopeType = "default"
    factor: float = 1.0
    """linear, llama3, yarn: how much longer the context is than at first."""
    original_context_len: int = 0
    """llama3, yarn: context of the unscaled model, in tokens."""
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    """llama3: wavelengths above original / low are scaled, below original / high are not."""
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    """yarn: rotations over the original context above which nothing is scaled, and below which all is."""
    truncate: bool = True
    """yarn: round the two bounds to whole dimensions."""
    attention_factor: float = 1.0
    """yarn: multiplies cos and sin."""
    freq_factors: tuple[float, ...] = ()
    """[head_dim / 2] divisors of the frequencies, where a file states them (Llama 3 as GGUF); empty: none."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A dense decoder: grouped attention heads, rotary positions, RMS norms, a gated SiLU MLP. Lengths in tokens."""

    architecture: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    """Rows of the embedding and of the logits; may be more than the tokenizer has."""
    max_context_len: int
    rms_norm_eps: float
    rope: RopeConfig
    windows: tuple[int | None, ...]
    """[num_layers] sliding window of each layer; None: it sees everything before."""
    tie_word_embeddings: bool
    qkv_bias: bool = False
    output_bias: bool = False
    """Of the attention's output projection."""
    mlp_bias: bool = False
    qk_norm: bool = False
    """RMS norm of each head of q and k before the rotation."""
    eos_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ModelError(
                f"{self.num_heads} query heads can't be shared out among {self.num_kv_heads} KV heads: the config is broken"
            )
        if self.head_dim % 2:
            raise ModelError(f"head_dim is {self.head_dim}: rotary positions need an even one; the config is broken")
