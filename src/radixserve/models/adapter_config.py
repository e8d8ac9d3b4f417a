"""`adapter_config.json` of a PEFT directory: how strong an adapter is, and what it asks for that can't be honoured."""

import json
import math
import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from radixserve.errors import ModelError
from radixserve.typed import read_fault

T = TypeVar("T", int, float)

MAX_RANK = 128

REFUSED = {
    "use_dora": "DoRA",
    "use_qalora": "QALoRA",
    "lora_bias": "a bias of its own",
    "modules_to_save": "modules of its own",
    "trainable_token_indices": "tokens of its own",
    "layer_replication": "replicated layers",
    "target_parameters": "parameters outside of linear layers",
    "alora_invocation_tokens": "activation by tokens (aLoRA)",
    "fan_in_fan_out": "transposed weights",
    "megatron_config": "Megatron's layers",
    "use_bdlora": "block-diagonal weights",
    "arrow_config": "a choice among several adapters (Arrow)",
    "kasa_config": "KaSA",
    "monteclora_config": "MonteCLoRA",
}
"""Fields that change what an adapter computes, and what they ask for."""

CHANGES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Ways to initialize an adapter that train it against changed weights of the base."""


class AdapterConfig(msgspec.Struct, frozen=True):
    """The fields of a LoRA that count. Patterns name modules whose rank or alpha is another than `r` and `lora_alpha`."""

    r: int
    lora_alpha: float
    use_rslora: bool = False
    rank_pattern: dict[str, int] | None = None
    alpha_pattern: dict[str, float] | None = None
    base_model_name_or_path: str | None = None

    def rank(self, module: str) -> int:
        """Of a module by its full name in the base, such as `model.layers.0.self_attn.q_proj`."""
        return _of_pattern(self.rank_pattern or {}, module, self.r)

    def scale(self, module: str) -> float:
        """What the module's addition is multiplied by."""
        rank = self.rank(module)
        return _of_pattern(self.alpha_pattern or {}, module, self.lora_alpha) / (math.sqrt(rank) if self.use_rslora else rank)


def read_adapter_config(directory: Path) -> AdapterConfig:
    """Raises ModelError when the directory holds no LoRA, or one that can't be honoured."""
    path = directory / "adapter_config.json"
    if not path.is_file():
        raise ModelError(f"{directory} has no adapter_config.json: give a directory that PEFT's save_pretrained wrote")
    try:
        fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        _refuse(fields, path)
        config = msgspec.convert(fields, AdapterConfig)
    except msgspec.ValidationError as error:
        reason, place = read_fault(str(error))
        raise ModelError(f"{path} is broken: {reason}{f' at {place}' if place else ''}; save the adapter again") from error
    except (OSError, ValueError, AttributeError) as error:
        raise ModelError(f"{path} is broken: {error}; save the adapter again") from error
    for pattern in (*(config.rank_pattern or {}), *(config.alpha_pattern or {})):
        try:
            re.compile(pattern)
        except re.error as error:
            raise ModelError(f"{path} has the pattern {pattern!r}, which is broken: {error}; save the adapter again") from error
    for rank in (config.r, *(config.rank_pattern or {}).values()):
        if not 1 <= rank <= MAX_RANK:
            raise ModelError(f"{path} has rank {rank}: must be between 1 and {MAX_RANK}")
    return config


def _refuse(fields: dict[str, Any], path: Path) -> None:
    kind = fields.get("peft_type")
    if kind != "LORA":
        raise ModelError(f"{path} has peft_type {kind!r}: only LORA is supported")
    for name, what in REFUSED.items():
        if fields.get(name):
            raise ModelError(f"{path} asks for {what} ({name}), which is not supported: train the adapter without it, or merge it")
    if (bias := fields.get("bias", "none")) != "none":
        raise ModelError(f"{path} has bias {bias!r}: only none is supported; train the adapter without it, or merge it")
    initial = fields.get("init_lora_weights")
    if isinstance(initial, str) and initial.lower().startswith(CHANGES_BASE):
        raise ModelError(
            f"{path} was initialized by {initial!r}, which changes the base: convert it to a plain LoRA when saving "
            "(path_initial_model_for_weight_conversion of PEFT)"
        )


def _of_pattern(patterns: dict[str, T], module: str, default: T) -> T:
    """The value of the first pattern that fits the end of a module's name, as PEFT finds it."""
    return next((value for pattern, value in patterns.items() if re.match(rf"(.*\.)?({pattern})$", module)), default)
