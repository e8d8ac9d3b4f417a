"""A GGUF file whose tensors can be read, whatever they are quantised as. The dequantisation is the `gguf` package's."""

import math
from pathlib import Path

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from radixserve.errors import ModelError
from radixserve.gguf_header import TensorInfo, read_gguf_header


class GGUFFile:
    """A GGUF file mapped into memory. Raises ModelError when it is not a whole GGUF file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        header = read_gguf_header(path)
        self.metadata = header.metadata
        self.tensors = header.tensors
        self._data = np.memmap(path, mode="r", dtype=np.uint8)
        needed = max((info.offset + self._num_bytes(name, info) for name, info in self.tensors.items()), default=0)
        if needed > len(self._data):
            raise ModelError(f"{path} has {len(self._data)} bytes and its tensors need {needed}: it is cut off; download it again")

    def read(self, name: str) -> np.ndarray:
        """The tensor as float32. Raises ModelError for a quantisation that can't be undone."""
        info = self.tensors[name]
        raw = self._data[info.offset : info.offset + self._num_bytes(name, info)]
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
