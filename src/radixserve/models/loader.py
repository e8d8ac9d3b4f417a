"""Loads a model for serving, and chooses the dtype it runs in."""

from pathlib import Path

import torch

from radixserve.config import Dtype
from radixserve.errors import ModelError
from radixserve.models.decoder import Decoder
from radixserve.models.source import open_checkpoint

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def load_model(path: Path, dtype: torch.dtype, device: torch.device) -> Decoder:
    """The model at `path`: a Hugging Face directory or a GGUF file. Raises ModelError when it is missing, broken or unsupported."""
    config, checkpoint = open_checkpoint(path)
    return Decoder(config, checkpoint, dtype, device)


def choose_dtype(name: Dtype, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 on CUDA and on CPUs that compute in it, else float32. Raises ModelError for float16 on a CPU."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" or _cpu_has_bfloat16() else torch.float32
    if name == "float16" and device.type == "cpu":
        raise ModelError("--dtype float16 needs CUDA: on a CPU use bfloat16 or float32")
    return DTYPES[name]


def _cpu_has_bfloat16() -> bool:
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
