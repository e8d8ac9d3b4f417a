"""Reads what `--record` wrote."""

import logging
from collections.abc import Iterator
from pathlib import Path

import msgspec

from radixserve.engine.recording import FORMAT, RecordedStep, RecordingHeader
from radixserve.errors import ConfigError
from radixserve.model_files import is_regular, shown

logger = logging.getLogger(__name__)

MAX_LIMIT = 1 << 28
"""Slots of a pool, tokens of a context and a vocabulary, tokens of a page. A broken header must not take all memory."""


class Recording:
    """A recording on disk; its steps are read as they are asked for, so that memory doesn't grow with its length."""

    def __init__(self, path: Path) -> None:
        """Reads the header. Raises ConfigError when `path` is no recording, or of a newer format."""
        header = read_header(path)
        if header is None:
            raise ConfigError(f"{path} is not a recording: give a file that `radixserve serve --record` wrote")
        if header.format > FORMAT:
            raise ConfigError(f"{path} has format {header.format}, this version reads {FORMAT}: use a newer RadixServe")
        for name, value in msgspec.structs.asdict(header.limits).items():
            if not 1 <= value <= MAX_LIMIT:
                raise ConfigError(f"{path} has {name} {value}: it must be between 1 and {MAX_LIMIT:,}; record it again")
        self.path, self.header = path, header
        self._warned = False

    def steps(self) -> Iterator[RecordedStep]:
        """Every step in order. A broken last line, left by a kill, is dropped with a warning; any other raises ConfigError."""
        decoder = msgspec.json.Decoder(RecordedStep)
        with self.path.open("rb") as file:
            file.readline()
            line = file.readline()
            number = 2
            while line:
                following = file.readline()
                try:
                    step = decoder.decode(line)
                except (msgspec.MsgspecError, RecursionError) as error:
                    if following:
                        raise ConfigError(f"{self.path}: line {number} is broken: {shown(error)}") from error
                    self._warn()
                    return
                yield step
                line, number = following, number + 1

    def _warn(self) -> None:
        """Once, however often the steps are read."""
        if not self._warned:
            logger.warning("%s: the last line is broken and left out: the engine was killed", self.path)
        self._warned = True


def read_header(path: Path) -> RecordingHeader | None:
    """The first line of a recording; None where the file starts otherwise. Raises ConfigError when it can't be read."""
    if not is_regular(path):
        raise ConfigError(f"{shown(path)} is not a file: give a recording, or a trace in JSON lines")
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.readline(), type=RecordingHeader)
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from error
    except (msgspec.MsgspecError, RecursionError):
        return None
