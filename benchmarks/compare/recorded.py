"""The recorded workloads of `python -m benchmarks.compare`: sessions of a coding agent, and chats.

Each rep has sessions of its own, in the order of the files, so that no server has seen them before.
"""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.compare.options import CompareOptions
from radixserve.bench.agent import agent_miniswe
from radixserve.bench.dialogues import mt_bench_101
from radixserve.bench.workloads import Workload
from radixserve.errors import ConfigError
from radixserve.text.tokenizer import Tokenizer

RECORDED = ("agent", "chats")


def load_recorded(names: Sequence[str], options: CompareOptions, tokenizer: Tokenizer) -> dict[str, list[Workload]]:
    """The recorded ones of the named workloads, one a rep. Raises ConfigError for a missing file, or one of too few sessions."""
    return {name: _load(name, options, tokenizer) for name in names if name in RECORDED}


def _load(name: str, options: CompareOptions, tokenizer: Tokenizer) -> list[Workload]:
    o = options
    path = _existing(name, o.agent_path if name == "agent" else o.chats_path)
    sessions_a_rep = o.agent_sessions if name == "agent" else o.num_requests
    needed = o.reps * sessions_a_rep
    if name == "agent":
        whole = agent_miniswe(
            path, tokenizer=tokenizer, num_prompts=needed, max_len=o.agent_max_len, output_len=o.output_len, ignore_eos=True
        )
    else:
        whole = mt_bench_101(path, num_prompts=needed, output_len=o.output_len, ignore_eos=True)
    if len(whole.sessions) < needed:
        raise ConfigError(
            f"--{name}-path has {len(whole.sessions)} sessions that fit: {o.reps} reps need {needed}, as none is run twice; "
            f"lower --reps or {'--agent-sessions' if name == 'agent' else '--num-requests'}"
        )
    return [
        Workload(name, whole.sessions[start : start + sessions_a_rep], note=whole.note)
        for start in range(0, needed, sessions_a_rep)
    ]


def _existing(name: str, path: Path | None) -> Path:
    if path is None:
        raise ConfigError(f"--workloads has {name}: set --{name}-path to its recording")
    if not path.exists():
        raise ConfigError(f"--{name}-path {path}: there is no such file")
    return path
