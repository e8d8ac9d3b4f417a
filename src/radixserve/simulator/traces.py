"""Traces without texts, in the JSONL form of Mooncake (Qin et al. 2025, "Mooncake: Trading More Storage for Less Computation"),
which AIPerf reads and writes too.

Each line has `input_length` and `output_length` in tokens, `hash_ids`, one a page of 512 tokens, and `timestamp` in milliseconds;
other fields are ignored. Equal ids mean equal content after an equal prefix. A line may have a `session_id` and a `delay`: then it
has no time of its own, but comes so many milliseconds after the answer to the line before of the same session. Every line has the
whole prompt, earlier turns included.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from radixserve.errors import ConfigError
from radixserve.tokens import TOKEN_BYTES

PAGE_LEN = 512
"""Tokens that one id of a trace stands for."""

MAX_LEN = 2**22
"""Tokens of a prompt, and of an answer."""

MAX_MS = 1e14
"""A time, 3,000 years: seconds stay exact to the microsecond up to there."""


class TraceRequest(msgspec.Struct, frozen=True):
    """One line. The last page may be part-filled: `input_length` says how far."""

    input_length: int
    output_length: int
    hash_ids: list[int]
    timestamp: float = 0.0
    session_id: str | int | None = None
    delay: float | None = None


def read_trace(path: Path) -> list[TraceRequest]:
    """All requests, in the order of the file. Raises ConfigError that names the line where it isn't a trace."""
    if not path.is_file():
        raise ConfigError(f"{path} is not a file: give a trace in JSON lines")
    requests = []
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                requests.append(_parse(line, f"{path} is not a Mooncake trace: line {number}"))
    return requests


def _parse(line: bytes, place: str) -> TraceRequest:
    try:
        request = msgspec.json.decode(line, type=TraceRequest)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{place}: {error}") from error
    except RecursionError:
        raise ConfigError(f"{place} is nested too deeply") from None
    for name, most in (("input_length", MAX_LEN), ("output_length", MAX_LEN), ("timestamp", MAX_MS), ("delay", MAX_MS)):
        if not 0 <= (value := getattr(request, name) or 0) <= most:
            raise ConfigError(f"{place} has a {name} of {value:g}: it must be between 0 and {most:,.0f}")
    num_pages = -(-request.input_length // PAGE_LEN)
    if request.input_length < 1 or len(request.hash_ids) != num_pages:
        raise ConfigError(
            f"{place} has an input_length of {request.input_length} and {len(request.hash_ids)} hash_ids: "
            f"it must have one for every {PAGE_LEN} tokens, {num_pages}"
        )
    return request


def write_trace(path: Path, requests: Iterable[TraceRequest]) -> None:
    """Writes the form that `read_trace` reads. Raises ConfigError where it can't be written, or is there already."""
    try:
        with path.open("xb") as file:
            for request in requests:
                file.write(msgspec.json.encode(request) + b"\n")
    except OSError as error:
        reason = (
            "is there already: name another file" if isinstance(error, FileExistsError) else f"can't be written: {error.strerror}"
        )
        raise ConfigError(f"--export {path} {reason}") from error


class PageIds:
    """Names pages by number, in order of first appearance: equal numbers mean equal tokens after an equal prefix."""

    def __init__(self, page_len: int = PAGE_LEN) -> None:
        self._page_bytes = page_len * TOKEN_BYTES
        self._known: dict[tuple[int, bytes], int] = {}

    def of(self, tokens: bytes) -> list[int]:
        """The pages of a prompt (int32 bytes), the last of which may be part-filled."""
        ids: list[int] = []
        above = -1
        for start in range(0, len(tokens), self._page_bytes):
            above = self._known.setdefault((above, tokens[start : start + self._page_bytes]), len(self._known))
            ids.append(above)
        return ids


def page_prompts(ids_of_prompts: Iterable[Sequence[int]]) -> list[bytes]:
    """Prompts with each page as one token: page ids, numbered anew so that they fit int32, as bytes."""
    numbers: dict[int, int] = {}
    return [
        np.array([numbers.setdefault(page, len(numbers)) for page in pages], dtype=np.int32).tobytes() for pages in ids_of_prompts
    ]
