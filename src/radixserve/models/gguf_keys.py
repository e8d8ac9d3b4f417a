"""Which keys of a GGUF header are known. See `hf_keys`: the same rule, for the keys of an architecture and of its tokenizer.

Meanings are those of llama.cpp (github.com/ggml-org/llama.cpp, src/llama-model.cpp and src/llama-vocab.cpp).
"""

from collections.abc import Mapping
from typing import Any

from radixserve.errors import ModelError
from radixserve.model_files import shown, words

HONOURED = words(
    """
    block_count context_length embedding_length feed_forward_length attention.head_count attention.head_count_kv
    attention.key_length attention.layer_norm_rms_epsilon attention.sliding_window expert_count rope.dimension_count
    rope.freq_base rope.scaling.type rope.scaling.factor rope.scale_linear rope.scaling.original_context_length
    rope.scaling.attn_factor rope.scaling.yarn_beta_fast rope.scaling.yarn_beta_slow
    """
)
"""After the name of the architecture."""

HARMLESS = words(
    """
    vocab_size tensor_data_layout rope.scaling.finetuned attention.layer_norm_epsilon expert_used_count attention.value_length
    """
)
"""`attention.value_length` follows from the tensors, whose shapes are checked."""

MUST_BE: Mapping[str, tuple[Any, ...]] = {
    "attention.causal": (True,),
    "use_parallel_residual": (False,),
    "rope.scaling.yarn_ext_factor": (1.0, -1.0),
    "rope.scaling.yarn_attn_factor": (1.0,),
    "rope.scaling.yarn_log_multiplier": (0.0,),
    "attention.scale": (0.0,),
    "residual_scale": (0.0, 1.0),
    "embedding_scale": (0.0, 1.0),
    "logit_scale": (0.0, 1.0),
    "attention.sliding_window_pattern": (0, 1),
}
"""Values at which a key changes nothing."""

TOKENIZER_MUST_BE: Mapping[str, tuple[Any, ...]] = {
    "add_eos_token": (False,),
    "remove_extra_whitespaces": (False,),
    "precompiled_charsmap": ([],),
    "escape_whitespaces": (True,),
}
"""The same of `tokenizer.ggml`."""


def check_keys(metadata: Mapping[str, Any], family: str, path: object) -> None:
    """Raises ModelError naming the first key of the model or its tokenizer that changes results and isn't honoured."""
    for key, value in metadata.items():
        if key.startswith(f"{family}."):
            name = key.removeprefix(f"{family}.")
            if name in HONOURED or name in HARMLESS or _means_nothing(name, value, MUST_BE):
                continue
        else:
            name = key.removeprefix("tokenizer.ggml.")
            if name == key or name not in TOKENIZER_MUST_BE or value in TOKENIZER_MUST_BE[name]:
                continue
        raise ModelError(
            f"{shown(path)} has {shown(key)} {shown(repr(value))}, without which the model would be computed wrongly, and which is "
            "not supported: use the model's Hugging Face directory or another model"
        )


def _means_nothing(name: str, value: Any, must_be: Mapping[str, tuple[Any, ...]]) -> bool:
    return value in must_be[name] if name in must_be else not value or isinstance(value, str)
