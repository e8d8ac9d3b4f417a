"""ModelConfig from a Hugging Face directory: config.json and generation_config.json.

Where a key is absent the default is that of transformers. What can't be honoured is refused, never ignored.
"""

import math
from pathlib import Path
from typing import Any

from radixserve.errors import ModelError
from radixserve.model_files import read_json, reading, shown, words
from radixserve.models.config import ModelConfig, RopeConfig
from radixserve.models.hf_keys import check_keys
from radixserve.models.rope import yarn_scale

FAMILIES = ("llama", "mistral", "ministral", "qwen2", "qwen3")
ROPE_TYPES = ("default", "linear", "llama3", "yarn")
ROPE_KEYS = words(
    """
    rope_type type rope_theta factor original_max_position_embeddings low_freq_factor high_freq_factor beta_fast beta_slow
    truncate attention_factor attn_factor mscale mscale_all_dim partial_rotary_factor finetuned
    """
)
"""`finetuned` says where weights come from."""
DEFAULT_MISTRAL_WINDOW = 4096
MAX_LAYERS = 4096
MAX_COUNT = 1 << 31


def read_hf_config(directory: Path) -> ModelConfig:
    """Raises ModelError naming the key or value that is missing or not supported."""
    path = directory / "config.json"
    with reading(path):
        return _config(_Raw(read_json(path), path), directory)


def _config(raw: "_Raw", directory: Path) -> ModelConfig:
    family = _check_supported(raw)
    num_heads = raw.count("num_attention_heads")
    hidden_size = raw.count("hidden_size")
    attention_bias = family in ("llama", "qwen3") and raw.flag("attention_bias")
    rope = _rope(raw)
    return ModelConfig(
        architecture="mistral" if family == "ministral" else family,
        num_layers=raw.count("num_hidden_layers", at_most=MAX_LAYERS),
        hidden_size=hidden_size,
        intermediate_size=raw.count("intermediate_size"),
        num_heads=num_heads,
        num_kv_heads=raw.count("num_key_value_heads", num_heads),
        head_dim=raw.count("head_dim", hidden_size // num_heads),
        vocab_size=raw.count("vocab_size"),
        max_context_len=_context_len(raw, rope),
        rms_norm_eps=raw.number(raw.values, "rms_norm_eps", 1e-6),
        rope=rope,
        windows=_windows(raw, family),
        tie_word_embeddings=raw.flag("tie_word_embeddings"),
        qkv_bias=attention_bias or family == "qwen2",
        output_bias=attention_bias,
        mlp_bias=family == "llama" and raw.flag("mlp_bias"),
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

    def flag(self, key: str) -> bool:
        """False where the key is absent or null."""
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.broken(key, value, "true or false")
        return bool(value)

    def count(self, key: str, default: int | None = None, *, at_most: int = MAX_COUNT) -> int:
        """A positive number; `default` stands for an absent one and for null."""
        value = self.values.get(key)
        if value is None:
            value = default
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= at_most:
            raise self.broken(key, value, f"a whole number from 1 to {at_most}")
        return value

    def number(self, values: dict[str, Any], key: str, default: float | None = None) -> float:
        """A positive number of `values`, the file or an object in it; `default` stands for an absent one and for null."""
        value = values.get(key)
        if value is None:
            value = default
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            raise self.broken(key, value, "a positive number")
        return float(value)

    def broken(self, key: str, value: Any, needed: str) -> ModelError:
        return ModelError(f"{shown(self.path)} has {key} {shown(repr(value))}: {needed} is needed; the config is broken")


def _check_supported(raw: _Raw) -> str:
    """Returns the family. Refuses others, quantised weights, other heads than a language model's, and keys it isn't computed by."""
    family, names = raw.get("model_type"), raw.get("architectures") or []
    if family not in FAMILIES or not isinstance(names, list) or any(not str(name).endswith("ForCausalLM") for name in names):
        raise ModelError(
            f"{shown(raw.path)} is a model of type {shown(repr(family))} ({shown(names or 'no architecture named')}): "
            f"supported are causal language models of type {', '.join(FAMILIES)}"
        )
    if quantization := raw.get("quantization_config"):
        method = quantization.get("quant_method", "unknown") if isinstance(quantization, dict) else "unknown"
        raise ModelError(
            f"{shown(raw.path)} is quantised with {shown(repr(method))}: "
            "give unquantised weights or a GGUF file, which is dequantised"
        )
    if raw.get("quantization"):
        raise ModelError(f"{shown(raw.path)} is quantised for MLX: give unquantised weights or a GGUF file, which is dequantised")
    check_keys(raw.values, family, raw.path)
    return str(family)


def _rope(raw: _Raw) -> RopeConfig:
    """From `rope_scaling`, or where that is absent `rope_parameters`, and `rope_theta`: in the order of transformers."""
    scaling = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    if not isinstance(scaling, dict):
        raise raw.broken("rope_scaling", scaling, "an object")
    if unknown := sorted(scaling.keys() - ROPE_KEYS):
        raise ModelError(f"{shown(raw.path)} has {shown(unknown[0])} in its rope parameters, which is not supported")
    for values in (raw.values, scaling):
        if raw.number(values, "partial_rotary_factor", 1.0) != 1.0:
            raise ModelError(
                f"{shown(raw.path)} has partial_rotary_factor {values['partial_rotary_factor']}: only whole heads can be rotated"
            )
    theta = raw.number(scaling, "rope_theta", raw.number(raw.values, "rope_theta", 10000.0))
    rope_type = scaling.get("rope_type") or scaling.get("type") or "default"
    if rope_type not in ROPE_TYPES:
        raise ModelError(f"{shown(raw.path)} has rope type {shown(repr(rope_type))}: supported are {', '.join(ROPE_TYPES)}")
    if rope_type == "default":
        return RopeConfig(theta=theta)
    factor = raw.number(scaling, "factor")
    if rope_type == "linear":
        return RopeConfig(theta=theta, rope_type="linear", factor=factor)
    stated = scaling if raw.get("original_max_position_embeddings") is None else raw.values
    original = int(raw.number(stated, "original_max_position_embeddings", raw.count("max_position_embeddings")))
    if rope_type == "llama3":
        return RopeConfig(
            theta=theta,
            rope_type="llama3",
            factor=factor,
            original_context_len=original,
            low_freq_factor=raw.number(scaling, "low_freq_factor"),
            high_freq_factor=raw.number(scaling, "high_freq_factor"),
        )
    return RopeConfig(
        theta=theta,
        rope_type="yarn",
        factor=factor,
        original_context_len=original,
        beta_fast=raw.number(scaling, "beta_fast", 32.0),
        beta_slow=raw.number(scaling, "beta_slow", 1.0),
        truncate=bool(scaling.get("truncate", True)),
        attention_factor=_attention_factor(raw, scaling, factor),
    )


def _attention_factor(raw: _Raw, scaling: dict[str, Any], factor: float) -> float:
    """As stated, else as the quotient of DeepSeek's two scales where both are given, else by YaRN's own formula.

    That is multiplied by `attn_factor`, as in vLLM and GGUF files (DeepSeek-R1-0528-Qwen3-8B has one); transformers passes over it.
    """
    if scaling.get("attention_factor") is not None:
        return raw.number(scaling, "attention_factor")
    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        scales = (yarn_scale(factor, raw.number(scaling, key)) for key in ("mscale", "mscale_all_dim"))
        return next(scales) / next(scales)
    return yarn_scale(factor, 1.0) * raw.number(scaling, "attn_factor", 1.0)


def _context_len(raw: _Raw, rope: RopeConfig) -> int:
    """YaRN is switched on in files whose max_position_embeddings still names the original context."""
    stated = raw.count("max_position_embeddings")
    return max(stated, int(rope.factor * rope.original_context_len)) if rope.rope_type == "yarn" else stated


def _windows(raw: _Raw, family: str) -> tuple[int | None, ...]:
    """Of each layer. Files of type mistral that list `layer_types` are ministral, as in transformers."""
    num_layers = raw.count("num_hidden_layers", at_most=MAX_LAYERS)
    mistral = family in ("mistral", "ministral")
    if family == "llama" or (not mistral and not raw.flag("use_sliding_window")):
        return (None,) * num_layers
    window = None
    if raw.get("sliding_window", DEFAULT_MISTRAL_WINDOW) is not None:
        window = raw.count("sliding_window", DEFAULT_MISTRAL_WINDOW)
    kinds = raw.get("layer_types")
    if kinds is None:
        first = 0 if mistral or raw.get("max_window_layers") == 0 else raw.count("max_window_layers", 28)
        return tuple(window if layer >= first else None for layer in range(num_layers))
    if not isinstance(kinds, list) or (unknown := {str(kind) for kind in kinds} - {"full_attention", "sliding_attention"}):
        raise ModelError(
            f"{shown(raw.path)} has layer_types {shown(sorted(unknown) if isinstance(kinds, list) else kinds)}: "
            "supported are full_attention and sliding_attention"
        )
    if len(kinds) != num_layers:
        raise raw.broken("layer_types", kinds, f"a list with one entry for each of the {num_layers} layers")
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def _eos_ids(raw: _Raw, directory: Path) -> tuple[int, ...]:
    generation = read_json(directory / "generation_config.json", missing_ok=True)
    ids: set[int] = set()
    for value in (raw.get("eos_token_id"), generation.get("eos_token_id")):
        for token_id in value if isinstance(value, list) else [] if value is None else [value]:
            if not isinstance(token_id, int) or isinstance(token_id, bool) or not 0 <= token_id < MAX_COUNT:
                raise raw.broken("eos_token_id", value, "a token id, or a list of them")
            ids.add(token_id)
    return tuple(sorted(ids))
