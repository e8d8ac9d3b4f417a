"""What the files of a model say about its text, whatever format they are in."""

from dataclasses import dataclass, field

from tokenizers import Tokenizer as Backend


@dataclass(frozen=True)
class TokenizerSpec:
    """`templates` are sources of chat templates by name; `special_tokens` are texts by role ("bos_token", "eos_token", ...)."""

    backend: Backend
    bos_id: int | None
    eos_ids: frozenset[int]
    special_tokens: dict[str, str] = field(default_factory=dict)
    templates: dict[str, str] = field(default_factory=dict)
