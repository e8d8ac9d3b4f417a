"""The tensors of a PEFT directory, checked whole against the model that they are for before the first is read."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import safe_open

from radixserve.errors import ModelError
from radixserve.model_files import is_regular, reading, shown
from radixserve.models.adapter_config import REMEDY, AdapterConfig, read_adapter_config
from radixserve.models.checkpoint import expected_shapes, few
from radixserve.models.config import ModelConfig
from radixserve.models.low_rank import LowRank

TARGETS = {
    "q_proj": "self_attn.q_proj",
    "k_proj": "self_attn.k_proj",
    "v_proj": "self_attn.v_proj",
    "o_proj": "self_attn.o_proj",
    "gate_proj": "mlp.gate_proj",
    "up_proj": "mlp.up_proj",
    "down_proj": "mlp.down_proj",
}
"""Modules that an adapter may add to, and where they are in a layer."""

DTYPES = ("F64", "F32", "F16", "BF16")
"""As safetensors names them."""


class Adapter(Protocol):
    """An adapter on disk, or the part of it that is computed here. `modules`: full names of what it adds to."""

    config: AdapterConfig
    modules: Sequence[str]

    def read(self, module: str, dtype: torch.dtype, device: torch.device) -> LowRank:
        """What is added to one of `modules`. Scaled before it is rounded to `dtype`. Raises ModelError for what is not finite."""


OpenAdapter = Callable[[Path, ModelConfig], Adapter]

_NAME = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
_MODULE = re.compile(rf"model\.layers\.\d+\.(?:{'|'.join(map(re.escape, TARGETS.values()))})")


class AdapterCheckpoint:
    """An adapter on disk for a model of `model`. Raises ModelError when it is broken, not supported, or made for another base."""

    def __init__(self, directory: Path, model: ModelConfig) -> None:
        self.config: AdapterConfig = read_adapter_config(directory)
        self._path = path = directory / "adapter_model.safetensors"
        if not is_regular(path):
            raise ModelError(f"{shown(directory)} has no adapter_model.safetensors: save the adapter in this form")
        self._file = _open(path)
        names = list(self._file.keys())
        slices = {name: self._file.get_slice(name) for name in names}
        shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
        self.modules: Sequence[str] = _modules(names, path)
        if others := [f"{name} in {part.get_dtype()}" for name, part in slices.items() if part.get_dtype() not in DTYPES]:
            raise ModelError(f"{path} holds {few(others)}: only {', '.join(DTYPES)} are supported; save the adapter in one of them")
        expected = expected_shapes(model)
        if faults := [fault for module in self.modules if (fault := _fault(module, shapes, self.config, expected))]:
            made_for = self.config.base_model_name_or_path
            raise ModelError(
                f"{shown(directory)} was made for another base{f' ({made_for})' if made_for else ''}: {few(faults, '; ')}; "
                "serve it with its own"
            )

    def read(self, module: str, dtype: torch.dtype, device: torch.device) -> LowRank:
        """See `Adapter`."""
        a, b = (self._file.get_tensor(f"base_model.model.{module}.lora_{half}.weight") for half in "AB")
        scaled = b.to(torch.promote_types(b.dtype, torch.float32)) * self.config.scale(module)
        part = LowRank(a.to(device, dtype, copy=True), scaled.to(device, dtype, copy=True))
        if not all(half.isfinite().all() for half in part):
            raise ModelError(f"{self._path} has no finite numbers for {module}: nothing could be sampled; train the adapter again")
        return part


def _open(path: Path) -> Any:
    with reading(path, REMEDY):
        return safe_open(path, framework="pt")


def _modules(names: list[str], path: Path) -> list[str]:
    """Modules by their full names in the base, in the file's order. Raises ModelError naming what can't be added to."""
    matches = {name: _NAME.fullmatch(name) for name in names}
    unknown = [name for name, match in matches.items() if match is None or not _MODULE.fullmatch(match[1])]
    if unknown:
        raise ModelError(f"{path} changes {few(unknown)}: an adapter may add to {', '.join(TARGETS)} of the layers alone")
    modules = dict.fromkeys(match[1] for match in matches.values() if match is not None)
    halves = [f"base_model.model.{module}.lora_{half}.weight" for module in modules for half in "AB"]
    if missing := [name for name in halves if name not in matches]:
        raise ModelError(f"{path} lacks {few(missing)}: save the adapter again")
    if not modules:
        raise ModelError(f"{path} holds no tensor: save the adapter again")
    return list(modules)


def _fault(
    module: str, shapes: dict[str, tuple[int, ...]], config: AdapterConfig, expected: dict[str, tuple[int, ...]]
) -> str | None:
    """How a module differs from the model's, in a few words."""
    here = expected.get(f"{module}.weight")
    if here is None:
        return f"{module} is not in this model"
    outputs, inputs = here
    rank = config.rank(module)
    a, b = (shapes[f"base_model.model.{module}.lora_{half}.weight"] for half in "AB")
    if a == (rank, inputs) and b == (outputs, rank):
        return None
    return f"{module} adds {list(b)} x {list(a)}, this model takes [{outputs}, {rank}] x [{rank}, {inputs}]"
