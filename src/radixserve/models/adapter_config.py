"""`adapter_config.json` of a PEFT directory: how strong an adapter is, and what it asks for that can't be honoured."""

import math
import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from radixserve.errors import ModelError
from radixserve.model_files import is_regular, read_json, reading, shown
from radixserve.validation import read_fault

T = TypeVar("T", int, float)

MAX_RANK = 128
REMEDY = "save the adapter again"
PATTERN = re.compile(r"\^?(?:[\w-]|\\?\.)+\$?")
"""Names of modules, or their ends, as PEFT writes them. It takes regular expressions too: those could run without an end."""

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
    if not is_regular(path):
        raise ModelError(f"{shown(directory)} has no adapter_config.json: give a directory that PEFT's save_pretrained wrote")
    try:
        with reading(path, REMEDY):
            fields = read_json(path, remedy=REMEDY)
            _refuse(fields, path)
            config = msgspec.convert(fields, AdapterConfig)
    except ModelError as error:
        if not isinstance(error.__cause__, msgspec.ValidationError):
            raise
        reason, place = read_fault(str(error.__cause__))
        raise ModelError(f"{shown(path)} is broken: {reason}{f' at {place}' if place else ''}; {REMEDY}") from error
    for pattern in (*(config.rank_pattern or {}), *(config.alpha_pattern or {})):
        if not PATTERN.fullmatch(pattern):
            raise ModelError(
                f"{shown(path)} has the pattern {shown(repr(pattern))}: only names of modules and their ends are "
                "supported, no regular expressions; write one entry a module"
            )
    if not math.isfinite(config.lora_alpha) or not all(map(math.isfinite, (config.alpha_pattern or {}).values())):
        raise ModelError(f"{shown(path)} has an alpha that is no finite number; {REMEDY}")
    for rank in (config.r, *(config.rank_pattern or {}).values()):
        if not 1 <= rank <= MAX_RANK:
            raise ModelError(f"{shown(path)} has rank {rank}: must be between 1 and {MAX_RANK}")
    return config


def _refuse(fields: dict[str, Any], path: Path) -> None:
    kind = fields.get("peft_type")
    if kind != "LORA":
        raise ModelError(f"{shown(path)} has peft_type {shown(repr(kind))}: only LORA is supported")
    for name, what in REFUSED.items():
        if fields.get(name):
            raise ModelError(
                f"{shown(path)} asks for {what} ({name}), which is not supported: train the adapter without it, or merge it"
            )
    if (bias := fields.get("bias", "none")) != "none":
        raise ModelError(
            f"{shown(path)} has bias {shown(repr(bias))}: only none is supported; train the adapter without it, or merge it"
        )
    initial = fields.get("init_lora_weights")
    if isinstance(initial, str) and initial.lower().startswith(CHANGES_BASE):
        raise ModelError(
            f"{shown(path)} was initialized by {shown(repr(initial))}, which changes the base: convert it to a plain LoRA when "
            "saving (path_initial_model_for_weight_conversion of PEFT)"
        )


def _of_pattern(patterns: dict[str, T], module: str, default: T) -> T:
    """The value of the first pattern that fits the end of a module's name, as PEFT finds it. All patterns fit PATTERN."""
    for pattern, value in patterns.items():
        name = pattern.removeprefix("^").removesuffix("$").replace("\\.", ".")
        if module == name or (module.endswith(f".{name}") and not pattern.startswith("^")):
            return value
    return default
