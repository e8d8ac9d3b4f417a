"""The demo's workloads: four shapes of sharing, as token ids of the model that is served, the same for the same seed."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from radixserve.bench.demo import text as demo_text
from radixserve.bench.workloads import TokenSession, Turn, Workload
from radixserve.errors import ConfigError
from radixserve.tokens import token_bytes, token_len

NUM_SHOTS = 8
SHARED_LEN = 2500
OWN_LEN = 1000
REASONING_LEN = 1200


class Encoder(Protocol):
    """What the demo needs of a tokenizer; see `radixserve.text.tokenizer`."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> np.ndarray: ...

    def encode_chat(self, messages: list[dict[str, Any]]) -> np.ndarray: ...


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much of each workload is run."""

    num_chats: int
    num_turns: int
    num_questions: int
    num_users: int
    num_branches: int


FULL = Scale(num_chats=8, num_turns=6, num_questions=100, num_users=100, num_branches=16)
QUICK = Scale(num_chats=4, num_turns=6, num_questions=24, num_users=6, num_branches=8)


def demo_workloads(encoder: Encoder, scale: Scale, seed: int = 0) -> list[Workload]:
    """Chats, few-shot questions, users on a long shared prefix, and branches from one reasoning."""
    return [
        chats(encoder, scale.num_chats, scale.num_turns),
        few_shot(encoder, scale.num_questions, random.Random(seed)),
        shared_prefix(encoder, scale.num_users, random.Random(seed + 1)),
        branches(encoder, scale.num_branches, random.Random(seed + 2)),
    ]


def chats(encoder: Encoder, num_chats: int, num_turns: int, answer_len: int = 32) -> Workload:
    """Chats on two system prompts. The generated ids of an answer are appended to the history, never tokenized again."""
    sessions = []
    for number, questions in enumerate(demo_text.CHATS[:num_chats]):
        system = {"role": "system", "content": demo_text.SYSTEM_PROMPTS[number % len(demo_text.SYSTEM_PROMPTS)]}
        first, *later = questions[:num_turns]
        contents = [token_bytes(encoder.encode_chat([system, {"role": "user", "content": first}]))]
        contents += [next_turn(encoder, question) for question in later]
        sessions.append(TokenSession(tuple(Turn(content, answer_len) for content in contents)))
    return Workload("chats", tuple(sessions))


def next_turn(encoder: Encoder, question: str) -> bytes:
    """What the chat template puts between an answer and the next one: the answer's end, the question, the opening.

    Raises ConfigError if the template rewrites earlier turns, so that a history can't be extended.
    """
    opening = [{"role": "user", "content": "."}]
    before = encoder.encode_chat(opening)
    extended = [*opening, {"role": "assistant", "content": ""}, {"role": "user", "content": question}]
    after = encoder.encode_chat(extended)
    if not np.array_equal(after[: len(before)], before):
        raise ConfigError("the model's chat template rewrites earlier turns: the demo's chats need one that only appends")
    return token_bytes(after[len(before) :])


def few_shot(encoder: Encoder, num_questions: int, rng: random.Random, answer_len: int = 24) -> Workload:
    """Word problems, each after the same eight worked ones."""
    shots = "".join(f"Question: {question}\nAnswer: {answer}\n\n" for question, answer in _problems(rng, NUM_SHOTS))
    preface = "Solve the problems. Write down the sum that leads to the answer, then the answer itself.\n\n"
    prompts = [f"{preface}{shots}Question: {question}\nAnswer:" for question, _ in _problems(rng, num_questions)]
    return Workload("few-shot", tuple(_single(token_bytes(encoder.encode(prompt)), answer_len) for prompt in prompts))


def shared_prefix(encoder: Encoder, num_users: int, rng: random.Random, answer_len: int = 16) -> Workload:
    """Users with 1,000 tokens of their own each, on a prefix of 2,500."""
    shared = _cut(encoder, demo_text.rules(rng), SHARED_LEN, starts=True)
    ending = token_bytes(encoder.encode("\nAccording to the rules, what must be done first?\n", add_special_tokens=False))
    sessions = []
    for number in range(num_users):
        own = _cut(encoder, demo_text.notes(rng, f"user {number + 1}"), OWN_LEN - token_len(ending))
        sessions.append(_single(shared + own + ending, answer_len))
    return Workload("shared prefix", tuple(sessions))


def branches(encoder: Encoder, num_branches: int, rng: random.Random, answer_len: int = 32) -> Workload:
    """Ways to go on from one long worked solution."""
    reasoning = _cut(encoder, demo_text.ledger(rng), REASONING_LEN, starts=True)
    tails = [encoder.encode(f"\n\n{text}\n", add_special_tokens=False) for text in demo_text.BRANCHES[:num_branches]]
    return Workload("branches", tuple(_single(reasoning + token_bytes(tail), answer_len) for tail in tails))


def _problems(rng: random.Random, count: int) -> list[tuple[str, str]]:
    return [demo_text.problem(rng) for _ in range(count)]


def _cut(encoder: Encoder, sentences: Iterator[str], length: int, *, starts: bool = False) -> bytes:
    """Exactly `length` tokens of a text. `starts`: it begins a prompt, with the model's BOS if it wants one."""
    text = ""
    while True:
        text += "".join(itertools.islice(sentences, 20))
        ids = encoder.encode(text, add_special_tokens=starts)
        if len(ids) >= length:
            return token_bytes(ids[:length])


def _single(prompt: bytes, answer_len: int) -> TokenSession:
    return TokenSession((Turn(prompt, answer_len),))
