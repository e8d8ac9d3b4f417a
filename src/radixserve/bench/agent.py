"""Recorded sessions of a coding agent (mini-SWE-agent): prompts that grow step by step, sent as plain text.

A session is a JSONL file of steps with `timestamp` and `input`, the whole prompt of the step. The recorded `input` is sent whatever
the served model answered before, because what follows in the record answers the recorded answers.
"""

from pathlib import Path

import msgspec

from radixserve.bench.workloads import TextSession, Turn, Workload
from radixserve.errors import ConfigError
from radixserve.text.tokenizer import Tokenizer


class Step(msgspec.Struct):
    """A line of a session. The recorded answer (`output`) is not used: the served model gives its own."""

    timestamp: int
    input: str


def agent_miniswe(
    path: Path, *, tokenizer: Tokenizer, num_prompts: int | None, max_len: int, output_len: int, ignore_eos: bool
) -> Workload:
    """One session a file of the folder `path`, by name; or the one session of the file `path`.

    A session is cut before the first step whose prompt and answer together have more than `max_len` tokens, as an agent's run ends
    when its context is full. The note counts what was cut.
    """
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise ConfigError(f"{path} has no *.jsonl file: a session is one file")
    sessions, num_cut, num_left_out = [], 0, 0
    for file in files[:num_prompts]:
        steps = _read(file)
        kept = _fitting(steps, tokenizer, max_len - output_len)
        num_cut += len(kept) < len(steps)
        num_left_out += len(steps) - len(kept)
        if kept:
            sessions.append(TextSession(tuple(Turn(step.input, output_len) for step in kept)))
    if not sessions:
        raise ConfigError(f"no session of {path} has a step of at most {max_len} tokens: raise --max-len")
    note = f"{num_cut} sessions cut at {max_len} tokens: {num_left_out} steps left out" if num_cut else ""
    return Workload("agent-miniswe", tuple(sessions), ignore_eos=ignore_eos, note=note)


def _fitting(steps: list[Step], tokenizer: Tokenizer, most_tokens: int) -> list[Step]:
    """The steps before the first whose prompt is longer."""
    for index, step in enumerate(steps):
        if len(tokenizer.encode(step.input)) > most_tokens:
            return steps[:index]
    return steps


def _read(file: Path) -> list[Step]:
    try:
        steps = [msgspec.json.decode(line, type=Step) for line in file.read_bytes().splitlines() if line.strip()]
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{file} can't be read as a session: {error}") from error
    return sorted(steps, key=lambda step: step.timestamp)
