"""Every key of a model's files is honoured, harmless by name, or refused: none changes what is asked for and is ignored."""

import json
from pathlib import Path
from typing import Any

import gguf
import pytest

from radixserve.errors import ModelError
from radixserve.models import gguf_keys, hf_keys
from radixserve.models.config import ModelConfig
from radixserve.models.gguf_config import read_gguf_config
from radixserve.models.gguf_file import GGUFFile
from radixserve.models.hf_config import read_hf_config
from tests.tiny_gguf import make_tiny_gguf
from tests.tiny_models import FAMILIES, make_tiny_model

MUTATED: dict[str, Any] = {
    "model_type": "gemma3",
    "architectures": ["LlamaForSequenceClassification"],
    "quantization_config": {"quant_method": "awq"},
    "rope_parameters": {"rope_type": "linear", "factor": 2.0},
    "rope_scaling": {"rope_type": "linear", "factor": 3.0},
    "rope_theta": 5000.0,
    "partial_rotary_factor": 0.5,
    "original_max_position_embeddings": 99,
    "tie_word_embeddings": "maybe",
    "eos_token_id": 11,
    "hidden_act": "gelu",
    "attention_bias": True,
    "mlp_bias": True,
    "sliding_window": 7,
    "use_sliding_window": False,
    "max_window_layers": 1,
    "layer_types": ["full_attention", "sliding_attention"],
    "head_dim": 8,
    "num_key_value_heads": 1,
    "rms_norm_eps": 0.5,
}
"""Values that mean something else than those of the tiny models; other keys get 3."""

IGNORED = {
    ("llama", "sliding_window"),
    ("llama", "use_sliding_window"),
    ("llama", "max_window_layers"),
    ("llama", "layer_types"),
    ("qwen2", "attention_bias"),
    # Of no effect where the rope type has no original context:
    *((family, "original_max_position_embeddings") for family in ("llama", "mistral", "qwen2", "qwen3")),
}
"""As in transformers."""


def read(tmp_path: Path, family: str, **values: Any) -> ModelConfig | str:
    """The config of a tiny model with other values, or why it is refused."""
    make_tiny_model(tmp_path, family)
    raw = json.loads((tmp_path / "config.json").read_text()) | values
    (tmp_path / "config.json").write_text(json.dumps(raw))
    try:
        return read_hf_config(tmp_path)
    except ModelError as error:
        return str(error)


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_every_key_of_a_config_gives_another_model_or_a_refusal(tmp_path: Path, family: str) -> None:
    windows = {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 0} if family.startswith("qwen") else {}
    plain = read(tmp_path, family, **windows)
    keys = (hf_keys.HONOURED | hf_keys.OF_FAMILY[family] | hf_keys.MUST_BE.keys()) - {"eos_token_id"}
    for key in sorted(keys):
        found = read(tmp_path, family, **windows | {key: MUTATED.get(key, 3)})
        if (family, key) in IGNORED:
            assert found == plain, key
        else:
            assert found != plain, key
        if key in hf_keys.MUST_BE:
            assert key in str(found)


@pytest.mark.parametrize("value", [True, 7, 0.5, [1], {"a": 1}])
def test_a_key_that_nobody_knows_is_refused_by_name_where_it_could_change_a_result(tmp_path: Path, value: Any) -> None:
    found = read(tmp_path, "llama", final_logit_softcapping=value)
    assert isinstance(found, str)
    assert "final_logit_softcapping" in found
    assert "\n" not in found


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}])
def test_a_key_that_nobody_knows_may_say_nothing(tmp_path: Path, value: Any) -> None:
    assert read(tmp_path, "llama", final_logit_softcapping=value) == read(tmp_path, "llama")


def test_what_real_files_hold_beside_the_model_is_harmless(tmp_path: Path) -> None:
    """Keys of SmolLM2, Llama 3, Mistral, Qwen2.5 and Qwen3 as they are published, and what trainers add."""
    for family in FAMILIES:
        make_tiny_model(tmp_path / family, family)
        raw = json.loads((tmp_path / family / "config.json").read_text()) | {
            "_name_or_path": "x",
            "attention_dropout": 0.1,
            "initializer_range": 0.041,
            "is_llama_config": True,
            "pretraining_tp": 1,
            "rope_interleaved": False,
            "torch_dtype": "bfloat16",
            "transformers.js_config": {"dtype": "q4"},
            "transformers_version": "4.42.3",
            "use_cache": True,
            "use_mrope": False,
            "unsloth_fixed": True,
            "id2label": {"0": "LABEL_0"},
            "temperature": 0.6,
            "max_length": 4096,
        }
        (tmp_path / family / "config.json").write_text(json.dumps(raw))
        read_hf_config(tmp_path / family)


def test_the_newer_of_two_rope_objects_gives_way_as_in_transformers(tmp_path: Path) -> None:
    both = read(tmp_path, "llama", rope_parameters={"rope_type": "linear", "factor": 2.0}, rope_scaling=MUTATED["rope_scaling"])
    assert isinstance(both, ModelConfig)
    assert both.rope.factor == 3.0


def test_a_mistral_with_layer_types_has_its_window_in_those_layers(tmp_path: Path) -> None:
    found = read(tmp_path, "mistral", layer_types=["full_attention", "sliding_attention"])
    assert isinstance(found, ModelConfig)
    assert found.windows == (None, 24)


def with_keys(path: Path, **values: Any) -> ModelConfig | str:
    """The config of a tiny GGUF file with more keys of `llama.`, or why it is refused."""
    make_tiny_gguf(path, make_tiny_model(path.parent / "hf"))
    file = GGUFFile(path)
    file.metadata |= {f"llama.{name}": value for name, value in values.items()}
    try:
        return read_gguf_config(file)
    except ModelError as error:
        return str(error)


def test_a_gguf_factor_without_a_type_is_linear_under_either_name(tmp_path: Path) -> None:
    for name in ("rope.scaling.factor", "rope.scale_linear"):
        config = with_keys(tmp_path / "model.gguf", **{name: 4.0})
        assert isinstance(config, ModelConfig)
        assert (config.rope.rope_type, config.rope.factor) == ("linear", 4.0)


def test_every_key_of_a_gguf_header_is_honoured_harmless_or_refused(tmp_path: Path) -> None:
    """Of all that llama.cpp knows for any architecture."""
    names = {value.removeprefix("{arch}.") for value in _values(gguf.Keys) if value.startswith("{arch}.")}
    assert len(names) > 80
    for name in sorted(names - gguf_keys.HONOURED - gguf_keys.HARMLESS):
        found = with_keys(tmp_path / "model.gguf", **{name: 3})
        assert isinstance(found, str), name
        assert name in found


@pytest.mark.parametrize(("key", "value"), [("add_eos_token", True), ("remove_extra_whitespaces", True)])
def test_keys_of_a_gguf_tokenizer_that_would_change_its_tokens_are_refused(tmp_path: Path, key: str, value: Any) -> None:
    make_tiny_gguf(tmp_path / "model.gguf", make_tiny_model(tmp_path / "hf"))
    file = GGUFFile(tmp_path / "model.gguf")
    file.metadata[f"tokenizer.ggml.{key}"] = value
    with pytest.raises(ModelError, match=key):
        read_gguf_config(file)


def _values(keys: type) -> list[str]:
    """All texts of a class and the classes in it."""
    found = []
    for value in vars(keys).values():
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, type):
            found += _values(value)
    return found


OF_RELEASES: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama 2": (
        "llama",
        {"_name_or_path": "meta-llama/Llama-2-7b-hf", "max_length": 4096, "pretraining_tp": 1, "rope_scaling": None},
    ),
    "Llama 3.2": (
        "llama",
        {
            "eos_token_id": [3, 4, 5],
            "head_dim": 16,
            "mlp_bias": False,
            "attention_bias": False,
            "rope_scaling": {
                "factor": 32.0,
                "high_freq_factor": 4.0,
                "low_freq_factor": 1.0,
                "original_max_position_embeddings": 8192,
                "rope_type": "llama3",
            },
            "torch_dtype": "bfloat16",
            "transformers_version": "4.45.0.dev0",
        },
    ),
    "SmolLM2": ("llama", {"is_llama_config": True, "rope_interleaved": False, "transformers.js_config": {"dtype": "q4"}}),
    "Vicuna": ("llama", {"max_sequence_length": 2048, "temperature": 0.9, "top_p": 0.6, "pad_token_id": 0, "max_length": 4096}),
    "Yarn-Llama-2": (
        "llama",
        {
            "auto_map": {"AutoConfig": "configuration_llama.LlamaConfig"},
            "rope_scaling": {"factor": 16.0, "finetuned": True, "original_max_position_embeddings": 4096, "type": "yarn"},
        },
    ),
    "deepseek-coder": ("llama", {"rope_scaling": {"factor": 4.0, "type": "linear"}, "torch_dtype": "bfloat16"}),
    "unsloth": ("llama", {"unsloth_fixed": True, "unsloth_version": "2025.3.19", "_attn_implementation_autoset": True}),
    "Mistral v0.3": ("mistral", {"sliding_window": None, "attention_dropout": 0.0, "head_dim": 16}),
    "Qwen2.5": ("qwen2", {"use_mrope": False, "use_sliding_window": False, "sliding_window": 131072, "max_window_layers": 28}),
    "CodeQwen1.5": ("qwen2", {"rotary_emb_base": 1000000, "seq_length": 65536, "sliding_window": 65536}),
    "Qwen3": ("qwen3", {"attention_bias": False, "max_window_layers": 36, "sliding_window": None, "rope_scaling": None}),
    "DeepSeek-R1-0528-Qwen3": (
        "qwen3",
        {
            "rope_scaling": {
                "attn_factor": 0.8782488562869419,
                "factor": 4.0,
                "original_max_position_embeddings": 32768,
                "rope_type": "yarn",
            }
        },
    ),
    "a test model": ("mistral", {"type_vocab_size": 16, "hidden_dropout_prob": 0.1, "is_decoder": True}),
}
"""Keys of released models' files that say more than shapes do."""


@pytest.mark.parametrize(("family", "values"), OF_RELEASES.values(), ids=OF_RELEASES.keys())
def test_configs_with_the_keys_of_released_models_are_read(tmp_path: Path, family: str, values: dict[str, Any]) -> None:
    assert isinstance(read(tmp_path, family, **values), ModelConfig)


def test_an_attn_factor_scales_what_yarn_says(tmp_path: Path) -> None:
    """The factor of DeepSeek-R1-0528-Qwen3-8B undoes YaRN's own scale, so that attention is not scaled."""
    family, values = OF_RELEASES["DeepSeek-R1-0528-Qwen3"]
    config = read(tmp_path, family, **values)
    assert isinstance(config, ModelConfig)
    assert config.rope.attention_factor == pytest.approx(1.0, abs=1e-6)
