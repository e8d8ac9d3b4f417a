"""Workloads of random token ids with exact lengths and exact sharing, under the names that other benchmarks use.

Nothing is tokenized, so a prompt has the promised length whatever the model. Ids start at `LOWEST_ID`, above the control tokens
of common vocabularies.
"""

import random

import numpy as np

from radixserve.bench.workloads import TokenSession, Turn, Workload
from radixserve.errors import ConfigError

LOWEST_ID = 300


def generated_shared_prefix(
    *,
    num_groups: int,
    prompts_per_group: int,
    system_prompt_len: int,
    question_len: int,
    output_len: int,
    vocab_size: int,
    seed: int = 0,
) -> Workload:
    """Groups of prompts that share a system prompt and differ in the question, shuffled. Lengths in tokens."""
    sessions = _grouped(
        TokenSource("generated-shared-prefix", seed, vocab_size),
        num_groups,
        prompts_per_group,
        system_prompt_len,
        question_len,
        output_len,
    )
    random.Random(seed).shuffle(sessions)
    return Workload("generated-shared-prefix", tuple(sessions))


def prefix_repetition(
    *,
    num_prompts: int,
    num_prefixes: int,
    prefix_len: int,
    suffix_len: int,
    output_len: int,
    vocab_size: int,
    seed: int = 0,
) -> Workload:
    """`num_prompts` prompts over `num_prefixes` prefixes, as many on each, shuffled; what doesn't divide is left out."""
    if num_prompts < num_prefixes:
        raise ConfigError(f"{num_prompts} prompts can't use {num_prefixes} prefixes: raise --num-prompts")
    ids = TokenSource("prefix-repetition", seed, vocab_size)
    sessions = _grouped(ids, num_prefixes, num_prompts // num_prefixes, prefix_len, suffix_len, output_len)
    random.Random(seed).shuffle(sessions)
    left_out = num_prompts % num_prefixes
    note = f"{left_out} prompts left out: {num_prompts} don't divide by {num_prefixes} prefixes" if left_out else ""
    return Workload("prefix-repetition", tuple(sessions), note=note)


class TokenSource:
    """Random token ids: the same for the same name and seed, others for another name."""

    def __init__(self, name: str, seed: int, vocab_size: int) -> None:
        if vocab_size <= LOWEST_ID:
            raise ConfigError(f"--vocab-size is {vocab_size}: prompts of random ids need more than {LOWEST_ID}")
        self._rng = np.random.Generator(np.random.PCG64([seed, *name.encode()]))
        self._vocab_size = vocab_size

    def take(self, count: int) -> bytes:
        """The next `count` ids, as int32 bytes."""
        return self._rng.integers(LOWEST_ID, self._vocab_size, size=count, dtype=np.int32).tobytes()


def _grouped(
    ids: TokenSource, num_groups: int, prompts_per_group: int, shared_len: int, own_len: int, output_len: int
) -> list[TokenSession]:
    """Prompts of groups, one group after the other; those of a group share their first `shared_len` tokens."""
    sessions = []
    for _ in range(num_groups):
        shared = ids.take(shared_len)
        sessions += [TokenSession((Turn(shared + ids.take(own_len), output_len),)) for _ in range(prompts_per_group)]
    return sessions
