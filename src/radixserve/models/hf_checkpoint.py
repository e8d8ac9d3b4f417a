"""Weights of a Hugging Face directory: one model.safetensors, or shards listed by an index."""

from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from radixserve.errors import ModelError
from radixserve.model_files import is_regular, read_json, reading, shown


class HFCheckpoint:
    """The safetensors files of a directory, mapped into memory. Raises ModelError when one is missing or broken."""

    def __init__(self, directory: Path) -> None:
        self._files: dict[str, Any] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        for path in _shards(directory):
            file = _open(path)
            for name in file.keys():  # noqa: SIM118 (not a mapping: it has keys() alone)
                self._files[name] = file
                self.shapes[name] = tuple(file.get_slice(name).get_shape())

    def read(self, name: str) -> torch.Tensor:
        tensor: torch.Tensor = self._files[name].get_tensor(name)
        if not tensor.is_floating_point():
            raise ModelError(f"{name} has dtype {tensor.dtype}: quantised weights are supported as GGUF files only")
        return tensor


def _shards(directory: Path) -> list[Path]:
    index = directory / "model.safetensors.index.json"
    if is_regular(index):
        with reading(index):
            names = sorted(set(read_json(index)["weight_map"].values()))
            if any(Path(name).name != name for name in names):
                raise ModelError(f"{shown(index)} names files of other folders: download the model again")
            return [directory / name for name in names]
    single = directory / "model.safetensors"
    if not is_regular(single):
        raise ModelError(
            f"{shown(directory)} has neither model.safetensors nor model.safetensors.index.json: convert the weights to safetensors"
        )
    return [single]


def _open(path: Path) -> Any:
    if not is_regular(path):
        raise ModelError(f"{shown(path)} is missing: download the model again")
    with reading(path):
        return safe_open(path, framework="pt")
