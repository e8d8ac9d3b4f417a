"""The workloads of `python -m benchmarks.compare`: prompts of an exact length in tokens, sent as text, and recorded ones.

A made-up prompt is a row of words of one token each, so that every server with this tokenizer sees the promised length, and
tokenizes as a server does. The same seed and rep give the same prompts to each server; another rep has a fresh prefix. No prompt's
tokens beyond the shared prefix occur in another, but for a first word or two by chance.
"""

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from benchmarks.compare.options import CompareOptions
from benchmarks.compare.recorded import RECORDED
from radixserve.bench.workloads import TextSession, Turn, Workload
from radixserve.errors import ConfigError
from radixserve.text.tokenizer import Tokenizer

MADE_UP = ("shared", "warm", "unique", "single", "decode8", "prefill")
NAMES = (*MADE_UP, *RECORDED)
SHORT_PROMPT_LEN = 32
LONG_ANSWER_LEN = 128
LEAST_WORDS = 1000
"""With fewer, prompts that are to share nothing would too often share their first words."""

_WORD = re.compile(rb" [a-z]{2,8}")


@dataclass(frozen=True, kw_only=True)
class ComparedWorkload:
    """One run's prompts, and what a server must report of them. Lengths in tokens."""

    workload: Workload
    max_concurrency: int
    answer_len: int
    prompt_len: int | None = None
    """None: prompts of any length, which tokenizers and templates may count otherwise."""
    reusable_len: int | None = None
    """What any cache can reuse, of all prompts together: more means that it was not empty at the start. None: not known."""

    @property
    def name(self) -> str:
        return self.workload.name


class WordPrompts:
    """Texts of exact lengths in tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Raises ConfigError where the vocabulary has too few words of one token."""
        self._tokenizer = tokenizer
        self._words = [word.decode() for word in _words(tokenizer)]
        if len(self._words) < LEAST_WORDS:
            raise ConfigError(f"the tokenizer has {len(self._words)} words of one token: prompts need {LEAST_WORDS}")
        probe = self._words[0]
        self.added_len = len(tokenizer.encode(probe)) - len(tokenizer.encode(probe, add_special_tokens=False))
        """Special tokens that the tokenizer puts before a text."""

    def take(self, num_tokens: int, seed: str) -> str:
        """Words of `num_tokens` tokens together. The same seed gives the same words."""
        return "".join(random.Random(seed).choices(self._words, k=num_tokens))

    def check(self, prompt: str, num_tokens: int) -> None:
        """Raises ConfigError unless the prompt has `num_tokens`, special tokens included."""
        found = len(self._tokenizer.encode(prompt))
        if found != num_tokens:
            raise ConfigError(f"a prompt of {num_tokens} words has {found} tokens: this tokenizer does not keep words apart")


def make_workloads(
    names: Sequence[str],
    prompts: WordPrompts,
    options: CompareOptions,
    rep: int,
    recorded: Mapping[str, Sequence[Workload]] = MappingProxyType({}),
) -> list[ComparedWorkload]:
    """The named workloads of one rep. `recorded`: see `load_recorded`.

    Raises ConfigError for lengths that can't be, or a tokenizer that can't make them.
    """
    made = []
    for name in names:
        if name in recorded:
            found = recorded[name][rep]
            made.append(ComparedWorkload(workload=found, max_concurrency=options.max_concurrency, answer_len=options.output_len))
            continue
        compared = _make(name, prompts, options, f"{options.seed}/{rep}")
        assert compared.prompt_len is not None
        for session in compared.workload.sessions:
            prompts.check(str(session.turns[0].content), compared.prompt_len)
        made.append(compared)
    return made


def _make(name: str, prompts: WordPrompts, options: CompareOptions, seed: str) -> ComparedWorkload:
    o, own = options, f"{seed}/{name}"
    first_len = o.prefix_len - prompts.added_len
    long_len = o.prefix_len + o.question_len
    if first_len < 1:
        raise ConfigError(f"--prefix-len is {o.prefix_len}: must be above {prompts.added_len}")
    match name:
        case "shared" | "warm":
            prefix = prompts.take(first_len, f"{seed}/prefix")
            texts = [prefix + prompts.take(o.question_len, f"{own}/{i}") for i in range(o.num_requests)]
            hits = o.num_requests if name == "warm" else o.num_requests - 1
            return _compared(name, texts, o.max_concurrency, long_len, o.output_len, hits * o.prefix_len)
        case "unique":
            texts = [prompts.take(first_len + o.question_len, f"{own}/{i}") for i in range(o.num_requests)]
            return _compared(name, texts, o.max_concurrency, long_len, o.output_len)
        case "single" | "decode8":
            count = 8 if name == "decode8" else 1
            texts = [prompts.take(SHORT_PROMPT_LEN - prompts.added_len, f"{own}/{i}") for i in range(count)]
            return _compared(name, texts, count, SHORT_PROMPT_LEN, LONG_ANSWER_LEN)
        case "prefill":
            return _compared(name, [prompts.take(first_len + o.question_len, own)], 1, long_len, 1)
        case _:
            raise ConfigError(f"--workloads has {name!r}: choose from {', '.join(NAMES)}")


def _compared(
    name: str, texts: Iterable[str], max_concurrency: int, prompt_len: int, answer_len: int, reusable_len: int = 0
) -> ComparedWorkload:
    return ComparedWorkload(
        workload=Workload(name, tuple(TextSession((Turn(text, answer_len),)) for text in texts)),
        max_concurrency=max_concurrency,
        prompt_len=prompt_len,
        answer_len=answer_len,
        reusable_len=reusable_len,
    )


def _words(tokenizer: Tokenizer) -> list[bytes]:
    """Tokens that are a space and a short word, and that the tokenizer finds again. In the order of their ids."""
    pieces = (tokenizer.token_bytes[token_id] for token_id in range(tokenizer.vocab_size))
    words = [piece for piece in pieces if _WORD.fullmatch(piece)]
    return [word for word in words if len(tokenizer.encode(word.decode(), add_special_tokens=False)) == 1]
