"""The header of a GGUF file: metadata and where the tensors lie.

The `gguf` package reads it too, but makes an array of every token of the vocabulary, which takes seconds; this takes a tenth. The
dequantisation is the package's. Format: github.com/ggml-org/ggml, docs/gguf.md; versions 2 and 3, little endian.
"""

import math
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from radixserve.errors import ModelError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
DEFAULT_ALIGNMENT = 32


class TensorInfo(NamedTuple):
    """`shape` as torch orders it; `offset` in bytes from the start of the file."""

    shape: tuple[int, ...]
    dtype: GGMLQuantizationType
    offset: int
    num_bytes: int


class GGUFFile:
    """A GGUF file mapped into memory. Raises ModelError when it is not a whole GGUF file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._data = np.memmap(path, mode="r", dtype=np.uint8)
            header = _Header(self._data.data)
            header.check_version()
            num_tensors, num_entries = header.scalar("Q"), header.scalar("Q")
            self.metadata: dict[str, Any] = dict(header.entry() for _ in range(num_entries))
            infos = [header.tensor_info() for _ in range(num_tensors)]
        except (OSError, ValueError, struct.error, OverflowError, MemoryError, KeyError) as error:
            raise ModelError(f"{path} is missing or not a whole GGUF file: {error!r}; download it again") from error
        alignment = self.metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        start = -(-header.position // alignment) * alignment
        self.tensors = {name: info._replace(offset=start + info.offset) for name, info in infos}
        needed = max((info.offset + info.num_bytes for info in self.tensors.values()), default=0)
        if needed > len(self._data):
            raise ModelError(f"{path} has {len(self._data)} bytes and its tensors need {needed}: it is cut off; download it again")

    def read(self, name: str) -> np.ndarray:
        """The tensor as float32. Raises ModelError for a quantisation that can't be undone."""
        info = self.tensors[name]
        raw = self._data[info.offset : info.offset + info.num_bytes]
        try:
            values = dequantize(raw.reshape(*info.shape[:-1], -1), info.dtype)
        except NotImplementedError as error:
            raise ModelError(
                f"{self.path} has {name} quantised as {info.dtype.name}, which can't be dequantised: use Q8_0 or F16"
            ) from error
        return np.asarray(values, dtype=np.float32).reshape(info.shape)


class _Header:
    """Reads the header from front to back."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.position = 0

    def check_version(self) -> None:
        magic, version = self.scalar("4s"), self.scalar("I")
        if magic != MAGIC or version not in VERSIONS:
            raise ValueError(f"magic {magic!r}, version {version}; supported are {MAGIC!r}, versions {VERSIONS}")

    def scalar(self, kind: str) -> Any:
        (value,) = struct.unpack_from("<" + kind, self._data, self.position)
        self.position += struct.calcsize(kind)
        return value

    def string(self) -> str:
        length = self.scalar("Q")
        end = self.position + length
        if end > len(self._data):
            raise ValueError(f"a string of {length} bytes goes beyond the end of the file")
        value = bytes(self._data[self.position : end])
        self.position = end
        return value.decode("utf-8")

    def entry(self) -> tuple[str, Any]:
        name = self.string()
        return name, self._value(self.scalar("I"))

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            return self.scalar(SCALARS[kind])
        item, length = self.scalar("I"), self.scalar("Q")
        if item in SCALARS:
            values = np.frombuffer(self._data, dtype=np.dtype("<" + SCALARS[item]), count=length, offset=self.position)
            self.position += values.nbytes
            return values.tolist()
        return [self._value(item) for _ in range(length)]

    def tensor_info(self) -> tuple[str, TensorInfo]:
        name, num_dims = self.string(), self.scalar("I")
        shape = tuple(self.scalar("Q") for _ in range(num_dims))[::-1]
        dtype, offset = GGMLQuantizationType(self.scalar("I")), self.scalar("Q")
        per_group, group_bytes = GGML_QUANT_SIZES[dtype]
        return name, TensorInfo(shape, dtype, offset, math.prod(shape) // per_group * group_bytes)
