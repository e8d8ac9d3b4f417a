"""What a PEFT directory may hold. Every refusal says what is wrong and what to do."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file

from radixserve.errors import ModelError
from radixserve.models.adapter_checkpoint import AdapterCheckpoint
from radixserve.models.adapter_config import REFUSED, AdapterConfig
from radixserve.models.source import load_config
from tests.tiny_adapters import make_tiny_adapter
from tests.tiny_models import make_tiny_model


def refusal(directory: Path, model: Path) -> str:
    with pytest.raises(ModelError) as caught:
        AdapterCheckpoint(directory, load_config(model))
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"use_dora": True}, "asks for DoRA (use_dora)"),
        ({"modules_to_save": ["lm_head"]}, "modules of its own (modules_to_save)"),
        ({"bias": "all"}, "has bias 'all': only none is supported"),
        ({"peft_type": "IA3"}, "has peft_type 'IA3': only LORA is supported"),
        ({"init_lora_weights": "pissa_niter_4"}, "was initialized by 'pissa_niter_4', which changes the base"),
        ({"init_lora_weights": "lora_ga"}, "was initialized by 'lora_ga', which changes the base"),
        ({"use_bdlora": {"nblocks": 2}}, "asks for block-diagonal weights (use_bdlora)"),
        ({"r": 200}, "has rank 200: must be between 1 and 128"),
        ({"r": "four"}, "is broken: expected int, got str"),
        ({"alpha_pattern": {"q_proj(": 8}}, "has the pattern 'q_proj(': only names of modules"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    fields: dict[str, Any], fault: str, tiny_model_dir: Path, tmp_path: Path
) -> None:
    assert fault in refusal(make_tiny_adapter(tmp_path / "adapter", tiny_model_dir, **fields), tiny_model_dir)


def test_another_base_is_refused_with_what_differs(tiny_model_dir: Path, tmp_path: Path) -> None:
    narrow = make_tiny_model(tmp_path / "narrow", hidden_size=32)
    message = refusal(make_tiny_adapter(tmp_path / "adapter", narrow, targets=("q_proj",)), tiny_model_dir)
    assert "was made for another base (tiny): model.layers.0.self_attn.q_proj adds [32, 4] x [4, 32], this model takes" in message
    deep = make_tiny_model(tmp_path / "deep", num_hidden_layers=3)
    message = refusal(make_tiny_adapter(tmp_path / "adapter", deep, targets=("up_proj",)), tiny_model_dir)
    assert "model.layers.2.mlp.up_proj is not in this model" in message


@pytest.mark.parametrize("name", ["lm_head.lora_A.weight", "model.embed_tokens.lora_embedding_A", "model.norm.weight"])
def test_other_modules_are_refused_by_name(name: str, tiny_model_dir: Path, tmp_path: Path) -> None:
    adapter = make_tiny_adapter(tmp_path / "adapter", tiny_model_dir)
    path = adapter / "adapter_model.safetensors"
    save_file(load_file(path) | {f"base_model.model.{name}": torch.zeros(2, 2)}, path)
    assert f"changes base_model.model.{name}: an adapter may add to q_proj" in refusal(adapter, tiny_model_dir)


NO_MATTER = {
    "auto_mapping", "corda_config", "ensure_weight_tying", "eva_config", "exclude_modules", "inference_mode", "layers_pattern",
    "layers_to_transform", "loftq_config", "lora_dropout", "lora_ga_config", "megatron_core", "peft_version", "qalora_group_size",
    "revision", "runtime_config", "target_modules", "task_type", "velora_config",
}  # fmt: skip
"""Of training, or told by which tensors there are, or by another field."""


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_every_field_of_peft_is_either_honoured_or_refused_or_of_no_matter() -> None:
    from peft import LoraConfig

    known = {field.name for field in msgspec.structs.fields(AdapterConfig)} | set(REFUSED) | NO_MATTER
    assert {field.name for field in dataclasses.fields(LoraConfig)} <= known | {"peft_type", "bias", "init_lora_weights"}


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn, torch.bool])
def test_weights_that_are_no_plain_floats_are_refused_by_name(dtype: torch.dtype, tiny_model_dir: Path, tmp_path: Path) -> None:
    adapter = make_tiny_adapter(tmp_path / "adapter", tiny_model_dir, targets=("q_proj",))
    path = adapter / "adapter_model.safetensors"
    save_file({name: tensor.to(dtype) for name, tensor in load_file(path).items()}, path)
    message = refusal(adapter, tiny_model_dir)
    assert "q_proj.lora_A.weight in " in message
    assert "only F64, F32, F16, BF16 are supported" in message


@pytest.mark.parametrize(("value", "dtype"), [(math.nan, torch.float32), (math.inf, torch.bfloat16), (1e6, torch.float16)])
def test_numbers_that_are_not_finite_in_the_dtype_of_the_model_are_refused(
    value: float, dtype: torch.dtype, tiny_model_dir: Path, tmp_path: Path
) -> None:
    adapter = make_tiny_adapter(tmp_path / "adapter", tiny_model_dir, targets=("q_proj",))
    path = adapter / "adapter_model.safetensors"
    tensors = load_file(path)
    module = "model.layers.1.self_attn.q_proj"
    tensors[f"base_model.model.{module}.lora_B.weight"][0, 0] = value
    save_file(tensors, path)
    checkpoint = AdapterCheckpoint(adapter, load_config(tiny_model_dir))
    with pytest.raises(ModelError, match=f"has no finite numbers for {module}"):
        checkpoint.read(module, dtype, torch.device("cpu"))


def test_a_broken_directory_is_refused(tiny_model_dir: Path, tmp_path: Path) -> None:
    assert "has no adapter_config.json" in refusal(tmp_path, tiny_model_dir)
    adapter = make_tiny_adapter(tmp_path / "adapter", tiny_model_dir, targets=("q_proj",))
    path = adapter / "adapter_model.safetensors"
    tensors = load_file(path)
    del tensors["base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight"]
    save_file(tensors, path)
    assert "lacks base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight" in refusal(adapter, tiny_model_dir)
    path.write_bytes(b"nothing")
    assert "is broken" in refusal(adapter, tiny_model_dir)
    path.unlink()
    assert "has no adapter_model.safetensors" in refusal(adapter, tiny_model_dir)
    (adapter / "adapter_config.json").write_text(json.dumps(["no object"]))
    assert "is broken" in refusal(adapter, tiny_model_dir)


@pytest.mark.parametrize(
    "pattern", ["q_proj", "self_attn.q_proj", r"layers\.0\.self_attn\.q_proj", "^model.layers.0.self_attn.q_proj$"]
)
def test_patterns_are_ends_of_names(pattern: str) -> None:
    config = AdapterConfig(r=4, lora_alpha=8, rank_pattern={pattern: 2})
    assert config.rank("model.layers.0.self_attn.q_proj") == 2
    assert config.rank("model.layers.1.self_attn.k_proj") == 4


@pytest.mark.parametrize("pattern", ["(a+)+$", "(.*)*b", "q_proj|k_proj", ".*", "[a-z]+", "a" * 9 + "?" * 9])
def test_regular_expressions_are_refused_and_never_run(tmp_path: Path, tiny_model_dir: Path, pattern: str) -> None:
    adapter = make_tiny_adapter(tmp_path / "adapter", tiny_model_dir, alpha_pattern={pattern: 8})
    assert "no regular expressions" in refusal(adapter, tiny_model_dir)
