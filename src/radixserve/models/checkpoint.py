"""A source of weights, and the check of it against the model that it is for.

Names are those of Hugging Face. A checkpoint is checked whole, names and shapes, before the first tensor is read.
"""

from collections.abc import Mapping
from typing import Protocol

import torch

from radixserve.errors import ModelError
from radixserve.models.config import ModelConfig

MAX_NAMED = 4


class Checkpoint(Protocol):
    """Tensors by name. `shapes` is known without reading them."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]: ...

    def read(self, name: str) -> torch.Tensor:
        """The tensor, on the CPU, in a floating-point dtype of the file's choice. Raises ModelError if it can't be decoded."""


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor the decoder reads."""
    hidden, inner = config.hidden_size, config.intermediate_size
    q_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocab_size, hidden), "model.norm.weight": (hidden,)}
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    linears = {
        "self_attn.q_proj": (q_size, hidden, config.qkv_bias),
        "self_attn.k_proj": (kv_size, hidden, config.qkv_bias),
        "self_attn.v_proj": (kv_size, hidden, config.qkv_bias),
        "self_attn.o_proj": (hidden, q_size, config.output_bias),
        "mlp.gate_proj": (inner, hidden, config.mlp_bias),
        "mlp.up_proj": (inner, hidden, config.mlp_bias),
        "mlp.down_proj": (hidden, inner, config.mlp_bias),
    }
    norms = {"input_layernorm": hidden, "post_attention_layernorm": hidden}
    if config.qk_norm:
        norms |= {"self_attn.q_norm": config.head_dim, "self_attn.k_norm": config.head_dim}
    for layer in range(config.num_layers):
        prefix = f"model.layers.{layer}."
        for name, (rows, columns, bias) in linears.items():
            shapes[f"{prefix}{name}.weight"] = (rows, columns)
            if bias:
                shapes[f"{prefix}{name}.bias"] = (rows,)
        for name, size in norms.items():
            shapes[f"{prefix}{name}.weight"] = (size,)
    return shapes


def check(checkpoint: Checkpoint, config: ModelConfig) -> None:
    """Raises ModelError naming the tensors that are missing, of another shape, or unknown."""
    expected, found = expected_shapes(config), checkpoint.shapes
    missing = [name for name in expected if name not in found]
    misshaped = [
        f"{name} is {list(found[name])}, not {list(shape)}" for name, shape in expected.items() if found.get(name, shape) != shape
    ]
    unknown = [name for name in found if name not in expected and not _is_ignored(name, config)]
    faults = [
        f"{label} {few(names)}" for label, names in (("lack", missing), ("differ:", misshaped), ("have unknown", unknown)) if names
    ]
    if faults and (form := _quantized_form(unknown)):
        raise ModelError(f"the weights are quantised ({form}): give unquantised weights or a GGUF file, which is dequantised")
    if faults:
        raise ModelError(f"the weights don't fit a {config.architecture} model of this config: they {'; they '.join(faults)}")


def _is_ignored(name: str, config: ModelConfig) -> bool:
    """A tied head may be stored a second time; old files store the frequencies of the rotation, which follow from the config."""
    return (config.tie_word_embeddings and name == "lm_head.weight") or name.endswith("rotary_emb.inv_freq")


QUANTIZED_FORMS = {
    ".qweight": "GPTQ or AWQ",
    ".weight_packed": "compressed-tensors",
    ".weight_scale": "FP8 or int8 with scales",
    ".weight_scale_inv": "FP8 with scales",
    ".absmax": "bitsandbytes",
    ".SCB": "bitsandbytes",
    ".scales": "MLX",
}
"""By the end of a tensor's name that no unquantised model has."""


def _quantized_form(unknown: list[str]) -> str | None:
    return next((form for end, form in QUANTIZED_FORMS.items() if any(name.endswith(end) for name in unknown)), None)


def few(names: list[str], separator: str = ", ") -> str:
    """The first of `names`, and how many more there are."""
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return separator.join(names[:MAX_NAMED]) + more
