"""ModelConfig from a Hugging Face directory: config.json and generation_config.json.

Where a key is absent the default is that of transformers. What can't be honoured is refused, never ignored.
"""

import json
from pathlib import Path
from typing import Any

from radixserve.errors import ModelError
from radixserve.models.config import ModelConfig, RopeConfig
from radixserve.models.rope import yarn_scale

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
ROPE_TYPES = ("default", "linear", "llama3", "yarn")
DEFAULT_MISTRAL_WINDOW = 4096


def read_hf_config(directory: Path) -> ModelConfig:
    """Raises ModelError naming the key or value that is missing or not supported."""
    raw = _Raw(_read_json(directory / "config.json"), directory / "config.json")
    family = _check_supported(raw)
    num_heads = raw.count("num_attention_heads")
    hidden_size = raw.count("hidden_size")
    attention_bias = family in ("llama", "qwen3") and bool(raw.get("attention_bias", False))
    rope = _rope(raw)
    return ModelConfig(
        architecture=family,
        num_layers=raw.count("num_hidden_layers"),
        hidden_size=hidden_size,
        intermediate_size=raw.count("intermediate_size"),
        num_heads=num_heads,
        num_kv_heads=raw.count("num_key_value_heads", num_heads),
        head_dim=raw.count("head_dim", hidden_size // num_heads),
        vocab_size=raw.count("vocab_size"),
        max_context_len=_context_len(raw, rope),
        rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        rope=rope,
        windows=_windows(raw, family),
        tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
        qkv_bias=attention_bias or family == "qwen2",
        output_bias=attention_bias,
        mlp_bias=family == "llama" and bool(raw.get("mlp_bias", False)),
        qk_norm=family == "qwen3",
        eos_ids=_eos_ids(raw, directory),
    )


class _Raw:
    """The parsed file, with errors that name it."""

    def __init__(self, values: dict[str, Any], path: Path) -> None:
        self.values = values
        self.path = path

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    def count(self, key: str, default: int | None = None) -> int:
        """A positive number; `default` stands for an absent one and for null."""
        value = self.values.get(key)
        if value is None:
            value = default
        if not isinstance(value, int) or value <= 0:
            raise ModelError(f"{self.path} has {key} {value!r}: a positive number is needed; the config is broken")
        return value


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"could not read {path}: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} does not hold an object: the file is broken")
    return value


def _check_supported(raw: _Raw) -> str:
    """Returns the family. Refuses others, quantised weights, other heads than a language model's, and other activations."""
    family, names = raw.get("model_type"), raw.get("architectures") or []
    if family not in FAMILIES or any(not name.endswith("ForCausalLM") for name in names):
        raise ModelError(
            f"{raw.path} is a model of type {family!r} ({', '.join(names) or 'no architecture named'}): "
            f"supported are causal language models of type {', '.join(FAMILIES)}"
        )
    if quantization := raw.get("quantization_config"):
        method = quantization.get("quant_method", "unknown")
        raise ModelError(f"{raw.path} is quantised with {method!r}: give unquantised weights or a GGUF file, which is dequantised")
    if (activation := raw.get("hidden_act", "silu")) != "silu":
        raise ModelError(f"{raw.path} has hidden_act {activation!r}: only silu is supported")
    if (partial := raw.get("partial_rotary_factor") or 1.0) != 1.0:
        raise ModelError(f"{raw.path} has partial_rotary_factor {partial}: only whole heads can be rotated")
    return str(family)


def _rope(raw: _Raw) -> RopeConfig:
    """From `rope_parameters`, or from the older pair `rope_theta` and `rope_scaling`."""
    scaling = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    theta = float(scaling.get("rope_theta") or raw.get("rope_theta") or 10000.0)
    rope_type = scaling.get("rope_type") or scaling.get("type") or "default"
    if rope_type not in ROPE_TYPES:
        raise ModelError(f"{raw.path} has rope type {rope_type!r}: supported are {', '.join(ROPE_TYPES)}")
    if rope_type == "default":
        return RopeConfig(theta=theta)
    factor = float(scaling.get("factor") or _missing(raw, "factor", rope_type))
    original = int(scaling.get("original_max_position_embeddings") or raw.count("max_position_embeddings"))
    if rope_type == "linear":
        return RopeConfig(theta=theta, rope_type="linear", factor=factor)
    if rope_type == "llama3":
        return RopeConfig(
            theta=theta,
            rope_type="llama3",
            factor=factor,
            original_context_len=original,
            low_freq_factor=float(scaling.get("low_freq_factor") or _missing(raw, "low_freq_factor", rope_type)),
            high_freq_factor=float(scaling.get("high_freq_factor") or _missing(raw, "high_freq_factor", rope_type)),
        )
    return RopeConfig(
        theta=theta,
        rope_type="yarn",
        factor=factor,
        original_context_len=original,
        beta_fast=float(scaling.get("beta_fast") or 32.0),
        beta_slow=float(scaling.get("beta_slow") or 1.0),
        truncate=bool(scaling.get("truncate", True)),
        attention_factor=_attention_factor(scaling, factor),
    )


def _missing(raw: _Raw, key: str, rope_type: str) -> float:
    raise ModelError(f"{raw.path} has rope type {rope_type!r} without {key}: the config is broken")


def _attention_factor(scaling: dict[str, Any], factor: float) -> float:
    """As stated, else as the quotient of DeepSeek's two scales where both are given, else by YaRN's own formula."""
    if (given := scaling.get("attention_factor")) is not None:
        return float(given)
    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        return yarn_scale(factor, scaling["mscale"]) / yarn_scale(factor, scaling["mscale_all_dim"])
    return yarn_scale(factor, 1.0)


def _context_len(raw: _Raw, rope: RopeConfig) -> int:
    """YaRN is switched on in files whose max_position_embeddings still names the original context."""
    stated = raw.count("max_position_embeddings")
    return max(stated, int(rope.factor * rope.original_context_len)) if rope.rope_type == "yarn" else stated


def _windows(raw: _Raw, family: str) -> tuple[int | None, ...]:
    num_layers = raw.count("num_hidden_layers")
    if family == "mistral":
        return (raw.get("sliding_window", DEFAULT_MISTRAL_WINDOW),) * num_layers
    if family == "llama" or not raw.get("use_sliding_window", False):
        return (None,) * num_layers
    window = raw.get("sliding_window", DEFAULT_MISTRAL_WINDOW)
    if kinds := raw.get("layer_types"):
        if unknown := set(kinds) - {"full_attention", "sliding_attention"}:
            raise ModelError(f"{raw.path} has layer_types {sorted(unknown)}: supported are full_attention and sliding_attention")
        return tuple(window if kind == "sliding_attention" else None for kind in kinds)
    first = int(raw.get("max_window_layers", 28))
    return tuple(window if layer >= first else None for layer in range(num_layers))


def _eos_ids(raw: _Raw, directory: Path) -> tuple[int, ...]:
    generation = directory / "generation_config.json"
    found = [raw.get("eos_token_id")]
    if generation.is_file():
        found.append(_read_json(generation).get("eos_token_id"))
    ids: set[int] = set()
    for value in found:
        ids.update(value if isinstance(value, list) else [] if value is None else [value])
    return tuple(sorted(ids))
