"""Compares eviction policies on traces and texts, one prompt at a time: the tables of docs/design/eviction.md.

    python benchmarks/eviction.py shared/workloads --policies lru,learned,belady --capacities 1,2,5,10,20

Pages are 512 tokens in the Mooncake trace and 64 characters elsewhere. Capacities are percent of the distinct pages of a workload.
Each line is one workload, policy and what goes at a time: the last page of a leaf, a whole leaf, or the tail that is needed.
"""

import argparse
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from radixserve.simulator.serial import BELADY, PORTIONS, num_unique, serial
from radixserve.simulator.traces import PageIds, page_prompts, read_trace

PAGE_BYTES = 64
Session = list[str]
"""The prompts of one conversation, each with all that was said before."""


def mooncake(folder: Path, half: int | None = None) -> list[list[int]]:
    requests = [request.hash_ids for request in read_trace(folder / "mooncake" / "conversation_trace.jsonl")]
    return requests if half is None else requests[half * 6_000 : 6_000 + half * len(requests)]


def agents(folder: Path) -> list[Session]:
    files = sorted((folder / "agent-miniswe").glob("*.jsonl"))
    steps = [sorted(map(json.loads, file.read_text().splitlines()), key=lambda step: step["timestamp"]) for file in files]
    return [[step["input"] for step in session] for session in steps]


def chats(folder: Path) -> list[Session]:
    sessions = []
    for line in (folder / "mt-bench-101" / "mtbench101.jsonl").read_text().splitlines():
        said, session = "", []
        for turn in json.loads(line)["history"]:
            said += f"<user>{turn['user']}<assistant>"
            session.append(said)
            said += turn["bot"]
        sessions.append(session)
    return sessions


def tools(folder: Path) -> list[Session]:
    sessions = []
    for dialogue in json.loads((folder / "tau-bench" / "gpt-4o-airline.json").read_text()):
        said, session = "", []
        for message in dialogue["traj"]:
            if message["role"] == "assistant":
                session.append(said)
            said += f"<{message['role']}>{message.get('content')}{message.get('tool_calls') or ''}"
        sessions.append(session)
    return sessions


def few_shot(folder: Path, num_prompts: int = 3_000, num_sets: int = 60) -> list[str]:
    """Questions behind eight solved ones, from sets of which some are asked for more often than others."""
    rng = random.Random(6)
    lines = [json.loads(line) for line in (folder / "gsm8k" / "test.jsonl").read_text().splitlines()]
    sets = ["".join(f"Q:{x['question']}A:{x['answer']}" for x in rng.sample(lines, 8)) for _ in range(num_sets)]
    picked = [min(int(rng.paretovariate(0.8)), num_sets) - 1 for _ in range(num_prompts)]
    return [f"{sets[index]}Q:{rng.choice(lines)['question']}" for index in picked]


def documents(num_prompts: int = 8_000, num_documents: int = 2_000) -> list[list[int]]:
    """Made up: questions of 1 to 12 pages about documents of 2 to 30, the n-th as often as 1 / n ** 0.9 says."""
    rng = random.Random(3)
    fresh = iter(range(10**9))
    texts = [[next(fresh) for _ in range(rng.randint(2, 30))] for _ in range(num_documents)]
    weights = [1 / (rank + 1) ** 0.9 for rank in range(num_documents)]
    return [[*text, *(next(fresh) for _ in range(rng.randint(1, 12)))] for text in rng.choices(texts, weights, k=num_prompts)]


def interleave(sessions: list[Session], at_once: int, seed: int | None) -> Iterator[str]:
    """So many sessions at a time, in turns, or in random order with a seed."""
    rng = random.Random(seed)
    if seed is not None:
        sessions = rng.sample(sessions, len(sessions))
    waiting, turn = iter(map(iter, sessions)), 0
    running = [session for _, session in zip(range(at_once), waiting, strict=False)]
    while running:
        turn = rng.randrange(len(running)) if seed is not None else turn % len(running)
        prompt = next(running[turn], None)
        if prompt is not None:
            yield prompt
            turn += 1
        elif (following := next(waiting, None)) is not None:
            running[turn] = following
        else:
            running.pop(turn)


def pages(prompts: Iterator[str] | list[str]) -> list[list[int]]:
    """Whole pages alone: a token of the page ids is a character."""
    ids = PageIds(PAGE_BYTES)
    whole = (prompt[: len(prompt) // PAGE_BYTES * PAGE_BYTES] for prompt in prompts)
    return [ids.of(prompt.encode("utf-32-le")) for prompt in whole]


WORKLOADS: dict[str, Callable[[Path], list[list[int]]]] = {
    "mooncake": mooncake,
    "mooncake (first half)": lambda folder: mooncake(folder, 0),
    "mooncake (second half)": lambda folder: mooncake(folder, 1),
    "8 agents in turns": lambda folder: pages(interleave(agents(folder), 8, None)),
    "8 agents in random order": lambda folder: pages(interleave(agents(folder), 8, 1)),
    "20 chats in turns": lambda folder: pages(interleave(chats(folder), 20, None)),
    "50 chats in random order": lambda folder: pages(interleave(chats(folder), 50, 2)),
    "200 chats in random order": lambda folder: pages(interleave(chats(folder), 200, 3)),
    "10 tool users in turns": lambda folder: pages(interleave(tools(folder), 10, None)),
    "40 tool users in random order": lambda folder: pages(interleave(tools(folder), 40, 4)),
    "few-shot questions": lambda folder: pages(few_shot(folder)),
    "documents": lambda folder: documents(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--policies", default="lru,learned,belady")
    parser.add_argument("--capacities", default="1,2,5,10,20")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    options = parser.parse_args()
    shares = [float(share) for share in options.capacities.split(",")]
    for name in options.workloads.split(","):
        prompts = page_prompts(WORKLOADS[name](options.folder))
        capacities = [max(int(num_unique(prompts) * share / 100), 1) for share in shares]
        for policy in options.policies.split(","):
            for portion in PORTIONS if policy != BELADY else PORTIONS[:1]:
                rates = [100 * serial(prompts, pages, policy, portion).hit_rate for pages in capacities]
                figures = " | ".join(f"{rate:.1f}" for rate in rates)
                print(f"| {name} | {policy} | {portion} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
