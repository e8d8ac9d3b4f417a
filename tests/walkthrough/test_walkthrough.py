"""The eleven-slot walkthrough through the real engine, with its exact slots, hits, times, splits and victims."""

import subprocess
import sys
from pathlib import Path

import pytest

from radixserve.config import EngineConfig
from radixserve.engine.assemble import assemble
from radixserve.engine.counting_runner import CountingRunner
from radixserve.engine.engine import Engine
from radixserve.ipc import EngineInfo, GenerateRequest, Output
from radixserve.limits import Limits
from radixserve.sampling_params import SamplingParams
from radixserve.tokens import as_ids, token_bytes

PROMPTS = ("Why my code throws errors", "Why GPU memory runs out", "Why my code is slow", "Why my code won't compile")
WORDS = list(dict.fromkeys(word for prompt in PROMPTS for word in prompt.split()))

Picture = dict[tuple[str, ...], tuple[list[int], int]]
"""For each path of edges: the slots and the time of the node at its end."""

TREES: list[Picture] = [
    {("Why my code throws errors",): ([1, 2, 3, 4, 5], 0)},
    {
        ("Why",): ([1], 1),
        ("Why", "my code throws errors"): ([2, 3, 4, 5], 1),
        ("Why", "GPU memory runs out"): ([6, 7, 8, 9], 1),
    },
    {
        ("Why",): ([1], 2),
        ("Why", "my code"): ([2, 3], 2),
        ("Why", "my code", "throws errors"): ([4, 5], 2),
        ("Why", "my code", "is slow"): ([10, 11], 2),
        ("Why", "GPU memory runs out"): ([6, 7, 8, 9], 1),
    },
    {
        ("Why",): ([1], 3),
        ("Why", "my code"): ([2, 3], 3),
        ("Why", "my code", "throws errors"): ([4, 5], 2),
        ("Why", "my code", "is slow"): ([10, 11], 2),
        ("Why", "my code", "won't compile"): ([6, 7], 3),
    },
]
HITS = [0, 1, 3, 3]
FREE = [[6, 7, 8, 9, 10, 11], [10, 11], [], [8, 9]]
EVICTED = [0, 0, 0, 4]


def make_engine() -> Engine:
    limits = Limits(vocab_size=len(WORDS), max_context_len=8, num_slots=11, page_size=1)
    info = EngineInfo(model="counting", dtype="none", device="cpu", limits=limits, kv_bytes=0, num_threads=1)
    return assemble(EngineConfig(max_running=1, decode_reserve=0), info, CountingRunner())


def ask(engine: Engine, prompt: str) -> Output:
    ids = token_bytes([WORDS.index(word) for word in prompt.split()])
    engine.receive(GenerateRequest(prompt, ids, SamplingParams(max_tokens=1)))
    (output,) = engine.step()
    assert isinstance(output, Output)
    return output


def picture(engine: Engine) -> Picture:
    path: list[str] = []
    nodes: Picture = {}
    for depth, node in engine.cache.walk():
        path[depth:] = [" ".join(WORDS[i] for i in as_ids(node.key))]
        nodes[tuple(path)] = (node.value.tolist(), node.last_access_time)
    return nodes


@pytest.mark.parametrize("time", range(4))
def test_the_tree_at_each_time(time: int) -> None:
    engine = make_engine()
    for prompt in PROMPTS[: time + 1]:
        output = ask(engine, prompt)
    cache = engine.cache
    assert output.cached_tokens == HITS[time]
    assert output.finish_reason == "length"
    assert cache.clock == time
    assert picture(engine) == TREES[time]
    assert cache.pool.free_slots().tolist() == FREE[time]
    assert cache.num_evicted == EVICTED[time]
    assert cache.protected_size == cache.request_size == 0


def test_nodes_keep_their_identity_through_splits() -> None:
    """A split makes the upper half new, so that whoever points to the end of a path still does."""
    engine = make_engine()
    ask(engine, PROMPTS[0])
    (leaf,) = [node for _, node in engine.cache.walk() if node.value.tolist() == [1, 2, 3, 4, 5]]
    ask(engine, PROMPTS[1])
    ask(engine, PROMPTS[2])
    assert leaf.value.tolist() == [4, 5]
    assert leaf.parent is not None
    assert leaf.parent.value.tolist() == [2, 3]


def test_the_example_prints_the_four_times() -> None:
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "examples/walkthrough.py"],
        cwd=root, env={"PYTHONPATH": "src", "PATH": ""}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for time, (prompt, hit, free) in enumerate(zip(PROMPTS, HITS, FREE, strict=True)):
        assert f'time {time}  "{prompt}"  {hit} of 5 tokens cached' in run.stdout
        assert f"free slots {free}" in run.stdout
    assert run.stdout.count("GPU memory runs out      slots [6, 7, 8, 9]  last used at 1") == 2
