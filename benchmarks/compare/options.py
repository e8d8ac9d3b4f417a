"""Options of `python -m benchmarks.compare`; the string under each field is its help."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Which servers to compare, and under what."""

    tokenizer: Path
    """Tokenizer of the model that all servers serve: a GGUF file or a Hugging Face directory."""

    peer: tuple[str, ...] = ()
    """NAME=URL of a server to compare with; repeat it for several."""

    ours: str = "http://127.0.0.1:8000"
    """The server whose figures are divided by those of each peer."""

    pid: tuple[str, ...] = ()
    """NAME=PID of the main process of a peer, or ours=PID: its runs then say how many cores anything else used."""

    model: str | None = None
    """Model to ask for; by default the first that each server lists."""

    workloads: str = "shared,warm,unique,single,decode8,prefill"
    """Which workloads, in this order. There are two more, of recorded sessions: agent and chats."""

    reps: int = 3
    """How often each workload is run on each server."""

    num_requests: int = 24
    """shared, warm, unique: requests of a run; chats: dialogues."""

    max_concurrency: int = 8
    """shared, warm, unique, agent, chats: requests open at once."""

    prefix_len: int = 1024
    """shared, warm: tokens that all prompts have in common; unique and prefill have as many of their own."""

    question_len: int = 64
    """shared, warm, unique, prefill: tokens after the prefix."""

    output_len: int = 32
    """shared, warm, unique, agent, chats: tokens of an answer."""

    agent_path: Path | None = None
    """agent: sessions of mini-SWE-agent, a folder of JSONL files. Each prompt is sent as recorded."""

    agent_sessions: int = 4
    """agent: sessions of a run."""

    agent_max_len: int = 8192
    """agent: sessions are cut before the first step of more tokens, answer included: the smallest context of all servers."""

    chats_path: Path | None = None
    """chats: dialogues of MT-Bench-101, a JSONL file. The server's own answers are fed back."""

    wait_quiet_s: float = 6.0
    """Wait up to so long before each run for half a second in which nothing else uses the machine."""

    seed: int = 0
    """Of all prompts. A server that has seen the prompts of a seed needs another, or a restart."""

    json: bool = False
    """Print one JSON object instead of the table."""

    output_file: Path | None = None
    """Write the JSON here too."""
