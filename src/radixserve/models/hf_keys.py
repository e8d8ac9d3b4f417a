"""Which keys of a config.json are known, family by family.

A key is honoured (the reader of the config reads it), harmless (it doesn't change what the model computes), or allowed at the
values at which it means nothing. Any other key is refused by name when its value could change a result: a model that is computed
without what its file asks for answers wrongly, and nobody sees it.
"""

from collections.abc import Mapping
from typing import Any

from radixserve.errors import ModelError
from radixserve.model_files import shown, words

HONOURED = words(
    """
    model_type architectures quantization_config vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads
    num_key_value_heads head_dim max_position_embeddings original_max_position_embeddings rms_norm_eps
    rope_parameters rope_scaling rope_theta partial_rotary_factor tie_word_embeddings eos_token_id
    """
)
"""Of all families. Those of one are in `OF_FAMILY`."""

_WINDOWS = frozenset({"use_sliding_window", "sliding_window", "max_window_layers", "layer_types"})
OF_FAMILY: Mapping[str, frozenset[str]] = {
    "llama": _WINDOWS | {"attention_bias", "mlp_bias"},  # windows are ignored, as transformers does
    "mistral": frozenset({"sliding_window", "layer_types"}),
    "ministral": frozenset({"sliding_window", "layer_types"}),
    "qwen2": _WINDOWS | {"attention_bias"},  # which transformers ignores: q, k and v have biases, the output has none
    "qwen3": _WINDOWS | {"attention_bias"},
}

HARMLESS = words(
    """
    torch_dtype dtype transformers_version use_cache initializer_range attention_dropout hidden_dropout hidden_dropout_prob
    attention_probs_dropout_prob resid_pdrop embd_pdrop attn_pdrop rope_dropout classifier_dropout pretraining_tp bos_token_id
    pad_token_id sep_token_id cls_token_id mask_token_id unk_token_id decoder_start_token_id tokenizer_class
    tokenizer_model_max_length tokenizer_padding_side name_or_path id2label label2id num_labels finetuning_task
    task_specific_params problem_type output_attentions output_hidden_states output_scores output_router_logits return_dict
    return_dict_in_generate use_return_dict torchscript tf_legacy_loss use_bfloat16 auto_map chunk_size_feed_forward max_length
    min_length max_new_tokens min_new_tokens do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature
    top_k top_p min_p typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size
    num_return_sequences prefix is_llama_config max_sequence_length max_seq_len max_seq_length seq_length model_max_length
    n_positions n_ctx gradient_checkpointing use_flash_attn use_flash_attention flash_attention attn_implementation
    unsloth_version unsloth_fixed model_name transformers.js_config neftune_noise_alpha router_aux_loss_coef z_loss_coeff
    training_config lora_config license language datasets base_model pad_vocab_size_multiple dim_model_base_init
    vocab_size_multiple rotary_emb_base type_vocab_size
    """
)
"""Bookkeeping, training, how replies are shaped, and defaults of generation (generation_config.json states those that count).

`rotary_emb_base` repeats `rope_theta`, which is what transformers reads.
"""

MUST_BE: Mapping[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish"),
    "hidden_activation": ("silu", "swish"),
    "is_causal": (True,),
    "is_decoder": (True, False),
    "use_rms_norm": (True,),
    "norm_type": ("rmsnorm", "rms_norm", "RMSNorm"),
    "mlp_type": ("llama", "silu", "swiglu"),
    "position_embedding_type": ("rope",),
    "attention_type": ("full",),
    "rope_interleaved": (False,),
    "tie_encoder_decoder": (False,),
    "embedding_multiplier": (1, 1.0),
    "residual_multiplier": (1, 1.0),
    "logits_scaling": (1, 1.0),
    "logit_scale": (1, 1.0),
    "scale_emb": (1, 1.0),
    "num_nextn_predict_layers": (0,),
    "sliding_window_pattern": (1,),
}
"""Values at which a key changes nothing. Null never does; false, 0 and what is empty change nothing under other keys."""

_BOOKKEEPING = ("_", "transformers", "torch", "unsloth", "training_", "wandb", "vision_", "image_", "video_", "audio_")
"""Beginnings of keys that say where a file comes from, or are about other parts of a model than its language model."""


def check_keys(values: Mapping[str, Any], family: str, path: object) -> None:
    """Raises ModelError naming the first key that changes what a model of `family` computes and isn't honoured."""
    known = HONOURED | OF_FAMILY[family]
    for key, value in values.items():
        if key in known or key in HARMLESS or key.startswith(_BOOKKEEPING) or _means_nothing(key, value):
            continue
        if key in MUST_BE:
            raise ModelError(f"{shown(path)} has {key} {shown(repr(value))}: only {MUST_BE[key][0]!r} is supported")
        raise ModelError(
            f"{shown(path)} has {shown(key)} {shown(repr(value))}, which a {family} model here is computed without: "
            "use a model without it, or set it to null where it changes nothing"
        )


def _means_nothing(key: str, value: Any) -> bool:
    """Also texts under keys that nobody knows: names and versions."""
    if value is None:
        return True
    if key in MUST_BE:
        return value in MUST_BE[key]
    return isinstance(value, str) or not value
