"""A GGUF file whose tensors can be read, whatever they are quantised as. The dequantisation is the `gguf` package's."""

import math
from pathlib import Path

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from radixserve.errors import ModelError
from radixserve.gguf_header import TensorInfo, parts, read_gguf_header


class GGUFFile:
    """A GGUF file, or all files of a split model, mapped into memory. Raises ModelError when one is not a whole GGUF file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tensors: dict[str, TensorInfo] = {}
        self._data: dict[str, np.ndarray] = {}
        for number, part in enumerate(parts(path)):
            header = read_gguf_header(part)
            if number == 0:
                self.metadata = header.metadata
            self._add(part, header.tensors)

    def _add(self, part: Path, tensors: dict[str, TensorInfo]) -> None:
        data = np.memmap(part, mode="r", dtype=np.uint8)
        needed = max((info.offset + self._num_bytes(name, info) for name, info in tensors.items()), default=0)
        if needed > len(data):
            raise ModelError(f"{part} has {len(data)} bytes and its tensors need {needed}: it is cut off; download it again")
        self.tensors |= tensors
        self._data |= dict.fromkeys(tensors, data)

    def read(self, name: str) -> np.ndarray:
        """The tensor as float32. Raises ModelError for a quantisation that can't be undone."""
        info = self.tensors[name]
        raw = self._data[name][info.offset : info.offset + self._num_bytes(name, info)]
        kind = GGMLQuantizationType(info.kind)
        try:
            values = dequantize(raw.reshape(*info.shape[:-1], -1), kind)
        except NotImplementedError as error:
            raise ModelError(
                f"{self.path} has {name} quantised as {kind.name}, which can't be dequantised: use Q8_0 or F16"
            ) from error
        return np.asarray(values, dtype=np.float32).reshape(info.shape)

    def _num_bytes(self, name: str, info: TensorInfo) -> int:
        try:
            per_group, group_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(info.kind)]
        except ValueError as error:
            raise ModelError(f"{self.path} has {name} in format {info.kind}, which is not known: use Q8_0 or F16") from error
        return math.prod(info.shape) // per_group * group_bytes
