"""The header of a GGUF file: its metadata and where its tensors lie.

The layout is the GGUF specification's (ggml, docs/gguf.md), versions 2 and 3, little-endian. gguf.GGUFReader reads the same but
wraps every string of the vocabulary in memory maps, which takes seconds where this takes a tenth of one.
"""

import mmap
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from radixserve.errors import ModelError

_BOOL, _STRING, _ARRAY = 7, 8, 9
_SCALARS = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", _BOOL: "?", 10: "<u8", 11: "<i8", 12: "<f8"}
_LENGTH = struct.Struct("<Q")
_DEFAULT_ALIGNMENT = 32
_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
"""Name of one file of a model that was split by llama.cpp's gguf-split."""


class TensorInfo(NamedTuple):
    """`shape` as torch orders it; `kind`: ggml's number of its format; `offset` in bytes from the start of the file."""

    shape: tuple[int, ...]
    kind: int
    offset: int


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """`metadata`: numbers, strings, lists of strings and of numbers by key; `tensors` by name."""

    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]


def parts(path: Path) -> list[Path]:
    """All files of the model that `path` belongs to, in order: one where it is not split. Raises ModelError if one is missing."""
    match = _PART.fullmatch(path.name)
    if match is None:
        return [path]
    count = int(match["count"])
    files = [path.with_name(f"{match['stem']}-{number:05}-of-{match['count']}.gguf") for number in range(1, count + 1)]
    if missing := [file for file in files if not file.is_file()]:
        raise ModelError(f"{path} is one of {count} files of a model, and {missing[0].name} is not beside it: download all of them")
    return files


def first_part(path: Path) -> Path:
    """The file of a model, split or not, that has its metadata."""
    return parts(path)[0]


def read_gguf_header(path: Path) -> GGUFHeader:
    """Raises ModelError if the file is missing, is not GGUF or ends inside its header."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Cursor(data, path).header()
    except OSError as error:
        raise ModelError(f"{path} can't be read: {error.strerror or error}") from error
    except (struct.error, ValueError, KeyError, TypeError, OverflowError, MemoryError, ZeroDivisionError) as error:
        raise ModelError(f"{path} is not a whole GGUF file: its header breaks off or is damaged; fetch it again") from error


class _Cursor:
    """Reads the header from front to back."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self._data = data
        self._path = path
        self._offset = 8

    def header(self) -> GGUFHeader:
        if self._data[:4] != b"GGUF":
            raise ModelError(f"{self._path} is not a GGUF file: it does not start with 'GGUF'")
        (version,) = struct.unpack_from("<I", self._data, 4)
        if version not in (2, 3):
            raise ModelError(
                f"{self._path} is GGUF version {version}: versions 2 and 3 (little-endian) are supported; convert it again"
            )
        num_tensors, num_pairs = self._length(), self._length()
        metadata = dict(self._pair() for _ in range(num_pairs))
        tensors = [self._tensor() for _ in range(num_tensors)]
        alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        start = -(-self._offset // alignment) * alignment
        return GGUFHeader(metadata, {name: info._replace(offset=start + info.offset) for name, info in tensors})

    def _tensor(self) -> tuple[str, TensorInfo]:
        """Its offset counts from the end of the header."""
        name = self._string()
        num_dims = int(self._numbers(4, 1)[0])
        shape = tuple(self._length() for _ in range(num_dims))[::-1]
        return name, TensorInfo(shape, int(self._numbers(4, 1)[0]), self._length())

    def _pair(self) -> tuple[str, Any]:
        key = self._string()
        kind = int(self._numbers(4, 1)[0])
        if kind == _STRING:
            return key, self._string()
        if kind == _ARRAY:
            return key, self._array()
        return key, self._numbers(kind, 1)[0].item()

    def _array(self) -> list[Any]:
        kind = int(self._numbers(4, 1)[0])
        count = self._length()
        if kind == _STRING:
            return [self._string() for _ in range(count)]
        if kind == _ARRAY:
            return [self._array() for _ in range(count)]
        values: list[Any] = self._numbers(kind, count).tolist()
        return values

    def _length(self) -> int:
        (length,) = _LENGTH.unpack_from(self._data, self._offset)
        self._offset += 8
        return int(length)

    def _string(self) -> str:
        start = self._offset + 8
        (length,) = _LENGTH.unpack_from(self._data, self._offset)
        raw = self._data[start : start + length]
        if len(raw) != length:
            raise ValueError("the file ends inside a string")
        self._offset = start + length
        return raw.decode("utf-8", "replace")

    def _numbers(self, kind: int, count: int) -> np.ndarray:
        dtype = np.dtype(_SCALARS[kind])
        raw = self._data[self._offset : self._offset + count * dtype.itemsize]
        self._offset += count * dtype.itemsize
        if len(raw) != count * dtype.itemsize:
            raise ValueError("the file ends inside an array")
        return np.frombuffer(raw, dtype=dtype)
