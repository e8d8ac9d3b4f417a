"""Options of `radixserve bench serve`; the string under each field is its help."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Dataset = Literal["generated-shared-prefix", "prefix-repetition", "mooncake", "openai-messages", "mt-bench-101", "agent-miniswe"]


@dataclass(frozen=True, kw_only=True)
class ServeBenchOptions:
    """What to ask, whom, and how hard."""

    dataset: Dataset = "generated-shared-prefix"
    """The workload."""

    dataset_path: Path | None = None
    """File of mooncake (JSONL), openai-messages (JSON or JSONL) or mt-bench-101 (JSONL); file or folder of agent-miniswe."""

    base_url: str = "http://127.0.0.1:8000"
    """The server, with or without /v1."""

    model: str | None = None
    """Model to ask for; by default the first that the server lists."""

    api_key: str | None = None
    """Sent as a bearer token."""

    num_prompts: int | None = None
    """How many to send: prompts, or whole dialogues where a workload has turns; by default all of the dataset."""

    max_concurrency: int = 8
    """Sessions open at once."""

    request_rate: float | None = None
    """Sessions a second, at the times of a Poisson process; by default the next starts when one ends."""

    temperature: float = 0.0
    """Of all requests; 0 is greedy."""

    output_len: int = 64
    """Most tokens of an answer, for openai-messages, mt-bench-101 and agent-miniswe."""

    ignore_eos: bool = False
    """Make those answers exactly --output-len long; other workloads always have exact lengths."""

    max_len: int = 8192
    """Most tokens of prompt and answer: mooncake leaves out longer requests, agent-miniswe cuts sessions there, and both count."""

    tokenizer: Path | None = None
    """agent-miniswe: GGUF file or Hugging Face directory of the served model, by whose tokenizer sessions are cut at --max-len."""

    vocab_size: int = 32000
    """Random token ids stay below this; must not exceed the model's vocabulary."""

    gsp_num_groups: int = 8
    """generated-shared-prefix: number of system prompts."""

    gsp_prompts_per_group: int = 8
    """generated-shared-prefix: prompts on each system prompt."""

    gsp_system_prompt_len: int = 1024
    """generated-shared-prefix: tokens of a system prompt."""

    gsp_question_len: int = 64
    """generated-shared-prefix: tokens of a question."""

    gsp_output_len: int = 32
    """generated-shared-prefix: tokens of an answer."""

    prefix_repetition_prefix_len: int = 256
    """prefix-repetition: tokens of a prefix."""

    prefix_repetition_suffix_len: int = 256
    """prefix-repetition: tokens after it."""

    prefix_repetition_num_prefixes: int = 10
    """prefix-repetition: number of prefixes."""

    prefix_repetition_output_len: int = 128
    """prefix-repetition: tokens of an answer."""

    seed: int = 0
    """Of everything random."""

    flush_cache: bool = False
    """Empty the server's cache first, by POST /flush_cache."""

    json: bool = False
    """Print one JSON object instead of the table."""

    output_file: Path | None = None
    """Write the JSON here too."""
