"""What a PEFT directory may hold. Every refusal says what is wrong and what to do."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from radixserve.errors import ModelError
from radixserve.models.adapter_checkpoint import AdapterCheckpoint
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
        ({"r": 200}, "has rank 200: must be between 1 and 128"),
        ({"r": "four"}, "is broken: expected int, got str"),
        ({"alpha_pattern": {"q_proj(": 8}}, "has the pattern 'q_proj(', which is broken"),
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
