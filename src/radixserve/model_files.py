"""Files of models and adapters come from anywhere. Whatever is wrong with one, it is a ModelError of one line that names it."""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from radixserve.errors import ModelError, RadixServeError, RankError

T = TypeVar("T")

logger = logging.getLogger(__name__)

MAX_JSON_BYTES = 64 << 20
MAX_SHOWN = 300
"""Characters of a path or a reason in a message."""


def words(text: str) -> frozenset[str]:
    """The words of a text: how long lists of keys are written."""
    return frozenset(text.split())


def shown(text: object) -> str:
    """A text from outside, in one line and cut: for messages and logs."""
    line = " ".join(str(text).split()).encode("utf-8", "replace").decode()
    return line if len(line) <= MAX_SHOWN else f"{line[:MAX_SHOWN]}…"


@contextmanager
def reading(path: Path | str, remedy: str = "download it again", kind: type[RadixServeError] = ModelError) -> Iterator[None]:
    """Makes an error of `kind` of whatever reading `path` raises. Errors of ours pass as they are.

    Parsers of headers and JSON raise a dozen kinds of exceptions on broken input, and some libraries panic.
    """
    try:
        yield
    except RadixServeError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # what Rust's libraries raise
            raise
        raise kind(f"{shown(path)} is broken: {shown(f'{type(error).__name__}: {error}')}; {remedy}") from error


def read_model(name: str, read: Callable[[], T]) -> T:
    """What `read` gives for the model or adapter of this name. Raises ModelError, or RankError if `read` does.

    One that can't be had is no reason for an engine to end: whatever else `read` raises is logged and becomes a ModelError.
    """
    try:
        return read()
    except (ModelError, RankError):
        raise
    except Exception as error:
        logger.exception("%s could not be read", shown(name))
        raise ModelError(f"{shown(name)} could not be read: {shown(f'{type(error).__name__}: {error}')}") from error


def is_regular(path: Path) -> bool:
    """Whether there is a file that can be read to its end: no directory, pipe or device. Never raises."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def read_json(path: Path, *, missing_ok: bool = False, remedy: str = "download it again") -> dict[str, Any]:
    """The object in a JSON file; empty where there may be none and is none. Raises ModelError."""
    if not is_regular(path):
        if missing_ok:
            return {}
        raise ModelError(f"could not read {shown(path)}: there is no such file")
    with reading(path, remedy):
        if (size := path.stat().st_size) > MAX_JSON_BYTES:
            raise ModelError(f"{shown(path)} has {size} bytes: at most {MAX_JSON_BYTES} are read as JSON")
        value = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
        if not isinstance(value, dict):
            raise ModelError(f"{shown(path)} is broken: it holds a JSON {type(value).__name__}, not an object; {remedy}")
    return value


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")
