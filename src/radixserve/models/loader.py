"""Loads a model for serving, and chooses the dtype it runs in and what computes it."""

from pathlib import Path

import torch

from radixserve import kernels
from radixserve.config import Dtype, Kernels, Quantization
from radixserve.errors import ModelError
from radixserve.models.adapter_checkpoint import AdapterCheckpoint, OpenAdapter
from radixserve.models.config import ModelConfig
from radixserve.models.decoder import AnyDecoder, Decoder
from radixserve.models.native_operations import NativeOperations, unsupported
from radixserve.models.operations import AnyOperations, Reduce
from radixserve.models.source import OpenModel, open_checkpoint
from radixserve.models.torch_operations import TorchOperations

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}

FAST_LEVELS = ("avx2", "avx512", "avx512_bf16")
"""Levels at which the native kernels are known to be faster than torch in bfloat16."""


def load_model(
    path: Path,
    dtype: torch.dtype,
    device: torch.device,
    operations: AnyOperations | None = None,
    opened: OpenModel = open_checkpoint,
    opened_adapter: OpenAdapter = AdapterCheckpoint,
) -> AnyDecoder:
    """The model at `path`: a Hugging Face directory or a GGUF file. Computed by torch unless other operations are given.

    Raises ModelError when it is missing, broken or unsupported.
    """
    return Decoder(path, dtype, device, operations or TorchOperations(), opened, opened_adapter)


def choose_operations(
    name: Kernels,
    model: ModelConfig,
    dtype: torch.dtype,
    device: torch.device,
    quantization: Quantization = "none",
    reduce: Reduce | None = None,
) -> tuple[AnyOperations, str]:
    """What computes a model, and a line that says so and why. `reduce`: for a rank of a split one.

    `auto` is the native kernels where they can run it, on a CPU of the FAST_LEVELS, else torch. Raises ModelError for
    `native` and for a quantization where they can't.
    """
    if quantization == "int8":
        reason = "--kernels is torch" if name == "torch" else unsupported(model, dtype, device)
        if reason is not None:
            raise ModelError(f"--quantization int8 needs the native kernels: {reason}; use --quantization none")
        return (operations := NativeOperations(int8=True, reduce=reduce)), operations.name
    if name == "torch":
        return TorchOperations(reduce), "torch, as asked"
    reason = unsupported(model, dtype, device)
    if reason is not None and name == "native":
        raise ModelError(f"--kernels native can't run this model: {reason}; use --kernels auto or torch")
    if reason is None and name == "auto" and kernels.level() not in FAST_LEVELS:
        reason = f"the CPU has none of {', '.join(FAST_LEVELS)}"
    if reason is not None:
        return TorchOperations(reduce), f"torch, because {reason}"
    operations = NativeOperations(reduce=reduce)
    return operations, operations.name


def choose_dtype(name: Dtype, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 on CUDA and on CPUs that compute in it, else float32. Raises ModelError for float16 on a CPU."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" or _cpu_has_bfloat16() else torch.float32
    if name == "float16" and device.type == "cpu":
        raise ModelError("--dtype float16 needs CUDA: on a CPU use bfloat16 or float32")
    return DTYPES[name]


def _cpu_has_bfloat16() -> bool:
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
