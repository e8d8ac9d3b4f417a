"""Reading config.json: what is understood, and that the rest is refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from radixserve.errors import ModelError
from radixserve.models.hf_config import read_hf_config
from tests.tiny_models import EOS_ID, make_tiny_model


@pytest.mark.parametrize(
    ("family", "overrides", "windows"),
    [
        ("llama", {"sliding_window": 8}, (None, None)),
        ("mistral", {}, (24, 24)),
        ("mistral", {"sliding_window": None}, (None, None)),
        ("qwen2", {"sliding_window": 8}, (None, None)),
        ("qwen2", {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1}, (None, 8)),
        (
            "qwen3",
            {"sliding_window": 8, "use_sliding_window": True, "layer_types": ["sliding_attention", "full_attention"]},
            (8, None),
        ),
    ],
)
def test_windows_are_taken_where_the_family_uses_them(
    tmp_path: Path, family: str, overrides: dict[str, Any], windows: tuple[int | None, ...]
) -> None:
    assert read_hf_config(make_tiny_model(tmp_path, family, **overrides)).windows == windows


def test_eos_ids_come_from_both_files(tmp_path: Path) -> None:
    make_tiny_model(tmp_path, eos_token_id=[7, 3])
    assert read_hf_config(tmp_path).eos_ids == (3, 7, EOS_ID)


def test_yarn_extends_the_context(tmp_path: Path) -> None:
    make_tiny_model(tmp_path, rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024})
    assert read_hf_config(tmp_path).max_context_len == 4096


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        ({"model_type": "gemma3"}, ["gemma3", "llama, mistral, ministral, qwen2, qwen3"]),
        ({"architectures": ["LlamaForSequenceClassification"]}, ["LlamaForSequenceClassification", "causal"]),
        ({"quantization_config": {"quant_method": "gptq"}}, ["gptq", "GGUF"]),
        ({"rope_scaling": {"rope_type": "longrope"}}, ["longrope", "default, linear, llama3, yarn"]),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, ["low_freq_factor", "positive number"]),
        ({"hidden_act": "gelu"}, ["gelu", "silu"]),
        ({"partial_rotary_factor": 0.5}, ["partial_rotary_factor", "0.5"]),
        ({"hidden_size": None}, ["hidden_size", "None"]),
        ({"num_hidden_layers": -1}, ["num_hidden_layers", "-1"]),
        ({"num_key_value_heads": 3}, ["4 query heads", "3 KV heads"]),
    ],
)
def test_what_is_not_supported_is_refused_by_name(tmp_path: Path, overrides: dict[str, Any], named: list[str]) -> None:
    make_tiny_model(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | overrides
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError) as error:
        read_hf_config(tmp_path)
    assert all(words in str(error.value) for words in named)
    assert "\n" not in str(error.value)


def test_unknown_layer_types_are_refused(tmp_path: Path) -> None:
    make_tiny_model(tmp_path, "qwen3", use_sliding_window=True, layer_types=["full_attention", "chunked_attention"])
    with pytest.raises(ModelError, match="chunked_attention"):
        read_hf_config(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "\x00\xff"])
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text, encoding="latin-1")
    with pytest.raises(ModelError, match=r"config\.json"):
        read_hf_config(tmp_path)
