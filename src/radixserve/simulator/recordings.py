"""Reads what `--record` wrote."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import msgspec

from radixserve.engine.recording import FORMAT, RecordedStep, RecordingHeader
from radixserve.errors import ConfigError


class Recording:
    """A recording on disk; its steps are read as they are asked for, so that memory doesn't grow with its length."""

    def __init__(self, path: Path) -> None:
        """Reads the header. Raises ConfigError when `path` is no recording, or of a newer format."""
        self.path = path
        try:
            with path.open("rb") as file:
                self.header = msgspec.json.decode(file.readline(), type=RecordingHeader)
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigError(f"{path} is not a recording: {error}") from error
        if self.header.format > FORMAT:
            raise ConfigError(f"{path} has format {self.header.format}, this version reads {FORMAT}: use a newer RadixServe")

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
                except msgspec.MsgspecError as error:
                    if following:
                        raise ConfigError(f"{self.path}: line {number} is broken: {error}") from error
                    warnings.warn(f"{self.path}: the last line is broken and left out: the engine was killed", stacklevel=2)
                    return
                yield step
                line, number = following, number + 1


def is_recording(path: Path) -> bool:
    """Whether a file starts like a recording; a trace doesn't."""
    try:
        Recording(path)
    except ConfigError:
        return False
    return True
