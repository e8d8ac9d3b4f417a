"""Weights of a Hugging Face directory: one model.safetensors, or shards listed by an index."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from radixserve.errors import ModelError


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
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, AttributeError) as error:
            raise ModelError(f"{index} is broken: {error!r}; download the model again") from error
        return [directory / name for name in names]
    single = directory / "model.safetensors"
    if not single.is_file():
        raise ModelError(
            f"{directory} has neither model.safetensors nor model.safetensors.index.json: convert the weights to safetensors"
        )
    return [single]


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path} is missing or broken: {error}; download the model again") from error
