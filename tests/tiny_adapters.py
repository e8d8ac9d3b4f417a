"""Adapters with random weights for the tiny models, in the form in which PEFT saves them."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def make_tiny_adapter(
    directory: Path, model: Path, *, rank: int = 4, targets: tuple[str, ...] = ALL, seed: int = 0, **overrides: Any
) -> Path:
    """Writes an adapter for the tiny model in `model` and returns `directory`. It changes most greedy answers.

    `overrides` go into adapter_config.json as they are. `rank_pattern` counts too.
    """
    directory.mkdir(parents=True, exist_ok=True)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "tiny",
        "r": rank,
        "lora_alpha": 2 * rank,
        "target_modules": list(targets),
        "bias": "none",
        "inference_mode": True,
    } | overrides
    (directory / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    with safe_open(model / "model.safetensors", framework="pt") as weights:
        for name in weights.keys():  # noqa: SIM118 (not a mapping)
            module = name.removesuffix(".weight")
            if not name.endswith(tuple(f"{target}.weight" for target in targets)):
                continue
            outputs, inputs = weights.get_slice(name).get_shape()
            own = config.get("rank_pattern", {}).get(module.rpartition(".")[2], rank)
            tensors[f"base_model.model.{module}.lora_A.weight"] = torch.randn(own, inputs, generator=generator) / inputs**0.5
            tensors[f"base_model.model.{module}.lora_B.weight"] = torch.randn(outputs, own, generator=generator) / own**0.5
    save_file(tensors, directory / "adapter_model.safetensors", metadata={"format": "pt"})
    return directory
