"""Workloads: deterministic, of the promised lengths, sharing what they promise."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from radixserve.bench.datasets import load_workload
from radixserve.bench.options import ServeBenchOptions
from radixserve.bench.record import Record
from radixserve.bench.synthetic import LOWEST_ID
from radixserve.bench.workloads import TokenSession, Turn
from radixserve.errors import ConfigError
from radixserve.tokens import as_ids
from tests.tiny_models import make_tiny_model


def prompts(options: ServeBenchOptions) -> list[bytes]:
    return [session.turns[0].content for session in load_workload(options).sessions]


def answer(text: str = "", output_ids: bytes = b"") -> Record:
    return Record(session=0, turn=0, start_s=0.0, end_s=1.0, text=text, output_ids=output_ids)


GSP = ServeBenchOptions(
    gsp_num_groups=3, gsp_prompts_per_group=4, gsp_system_prompt_len=50, gsp_question_len=7, gsp_output_len=5, vocab_size=1000
)


def test_generated_shared_prefix_has_exact_lengths_and_groups() -> None:
    sent = prompts(GSP)
    assert len(sent) == len(set(sent)) == 12
    assert {len(prompt) // 4 for prompt in sent} == {57}
    assert sorted(Counter(prompt[: 50 * 4] for prompt in sent).values()) == [4, 4, 4]
    ids = as_ids(b"".join(sent))
    assert ids.min() >= LOWEST_ID
    assert ids.max() < 1000
    assert {turn.max_tokens for session in load_workload(GSP).sessions for turn in session.turns} == {5}


def test_random_workloads_depend_on_the_seed_alone() -> None:
    assert prompts(GSP) == prompts(GSP)
    assert prompts(GSP) != prompts(replace(GSP, seed=1))


def test_workloads_of_random_ids_share_nothing_with_one_another(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"input_length": 57, "output_length": 1, "hash_ids": [0]}')
    others = [
        ServeBenchOptions(dataset="prefix-repetition", num_prompts=10, vocab_size=1000),
        ServeBenchOptions(dataset="mooncake", dataset_path=trace, vocab_size=1000),
    ]
    starts = [{prompt[:40] for prompt in prompts(options)} for options in (GSP, *others)]
    assert len(set.union(*starts)) == sum(len(start) for start in starts)


def test_num_prompts_cuts_a_workload() -> None:
    assert prompts(replace(GSP, num_prompts=5)) == prompts(GSP)[:5]


def test_prefix_repetition_spreads_prompts_evenly_and_says_what_it_left_out() -> None:
    options = ServeBenchOptions(
        dataset="prefix-repetition",
        num_prompts=11,
        prefix_repetition_num_prefixes=3,
        prefix_repetition_prefix_len=20,
        prefix_repetition_suffix_len=4,
    )
    sent = prompts(options)
    assert sorted(Counter(prompt[:80] for prompt in sent).values()) == [3, 3, 3]
    assert {len(prompt) for prompt in sent} == {96}
    assert "2 prompts left out" in load_workload(options).note
    with pytest.raises(ConfigError, match="2 prompts can't use 3 prefixes"):
        load_workload(replace(options, num_prompts=2))


def test_mooncake_pages_with_equal_ids_have_equal_tokens(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    lines = [
        {"timestamp": 0, "input_length": 600, "output_length": 9, "hash_ids": [0, 1]},
        {"timestamp": 3, "input_length": 1024, "output_length": 2, "hash_ids": [0, 2]},
        {"timestamp": 4, "input_length": 5000, "output_length": 2, "hash_ids": list(range(10, 20))},
        {"timestamp": 5, "input_length": 700, "output_length": 2, "hash_ids": [0, 1]},
    ]
    trace.write_text("\n".join(json.dumps(line) for line in lines))
    workload = load_workload(ServeBenchOptions(dataset="mooncake", dataset_path=trace, max_len=2000))
    first, second, third = (session.turns[0].content for session in workload.sessions)
    assert [len(first), len(second), len(third)] == [600 * 4, 1024 * 4, 700 * 4]
    assert first[: 512 * 4] == second[: 512 * 4]
    assert first[512 * 4 :] != second[512 * 4 : 600 * 4]
    assert third.startswith(first)
    assert [session.turns[0].max_tokens for session in workload.sessions] == [9, 2, 2]
    assert "1 requests left out" in workload.note


def test_mt_bench_101_feeds_back_the_servers_own_answers(tmp_path: Path) -> None:
    file = tmp_path / "dialogues.jsonl"
    history = [{"user": "one", "bot": "recorded"}, {"user": "two", "bot": "recorded"}]
    file.write_text(json.dumps({"task": "GR", "id": 1, "history": history}))
    workload = load_workload(ServeBenchOptions(dataset="mt-bench-101", dataset_path=file, output_len=11))
    assert not workload.ignore_eos
    assert workload.num_requests == 2
    session = workload.sessions[0]
    assert session.prompt([]) == ({"role": "user", "content": "one"},)
    assert session.prompt([answer("mine")]) == (
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "mine"},
        {"role": "user", "content": "two"},
    )


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
@pytest.mark.parametrize("wrapped", [True, False])
def test_openai_messages_ask_for_each_recorded_answer(tmp_path: Path, suffix: str, wrapped: bool) -> None:
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u1"},
        {"role": "assistant", "content": "a1"},
        {"role": "tool", "content": "t", "tool_call_id": "x"},
        {"role": "assistant", "content": "a2"},
    ]
    conversation = {"messages": messages} if wrapped else messages
    file = tmp_path / f"conversations{suffix}"
    file.write_text(json.dumps([conversation]) if suffix == ".json" else json.dumps(conversation) + "\n")
    session = load_workload(ServeBenchOptions(dataset="openai-messages", dataset_path=file)).sessions[0]
    assert len(session.turns) == 2
    assert session.prompt([]) == tuple(messages[:2])
    assert session.prompt([answer("mine")]) == tuple(messages[:4])


def agent_options(tmp_path: Path, **changes: Any) -> ServeBenchOptions:
    """Two recorded sessions, their prompts of 4, 8 and 20 and of 30 bytes, and a tokenizer of bytes."""
    for name, lengths in {"b": [30], "a": [8, 4, 20]}.items():
        steps = [{"timestamp": length, "input": name * length, "output": "recorded"} for length in lengths]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(json.dumps(step) for step in steps))
    model = make_tiny_model(tmp_path / "model")
    options = ServeBenchOptions(dataset="agent-miniswe", dataset_path=tmp_path, tokenizer=model, output_len=3, max_len=15)
    return replace(options, **changes)


def test_agent_sessions_are_cut_at_the_context_and_counted(tmp_path: Path) -> None:
    workload = load_workload(agent_options(tmp_path))
    assert [session.turns for session in workload.sessions] == [(Turn("aaaa", 3), Turn("aaaaaaaa", 3))]
    assert workload.sessions[0].prompt([answer("mine")]) == "aaaaaaaa"
    assert workload.note == "2 sessions cut at 15 tokens: 2 steps left out"
    whole = load_workload(agent_options(tmp_path, max_len=33))
    assert [len(session.turns) for session in whole.sessions] == [3, 1]
    assert whole.note == ""
    assert not whole.ignore_eos


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer": None}, "needs the served model's tokenizer"),
        ({"max_len": 4}, "has a step of at most 4 tokens: raise --max-len"),
    ],
)
def test_agent_sessions_need_a_tokenizer_and_room(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_workload(agent_options(tmp_path, **changes))


def test_a_session_of_tokens_appends_generated_ids() -> None:
    session = TokenSession((Turn(b"aaaa", 1), Turn(b"cccc", 1)))
    assert session.prompt([]) == b"aaaa"
    assert session.prompt([answer(output_ids=b"bbbb")]) == b"aaaabbbbcccc"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ServeBenchOptions(dataset="mooncake"), "mooncake needs a file: set --dataset-path"),
        (ServeBenchOptions(dataset="mt-bench-101", dataset_path=Path("/nowhere")), "/nowhere is not a file"),
        (ServeBenchOptions(max_concurrency=0), "--max-concurrency is 0: must be at least 1"),
        (ServeBenchOptions(seed=-1), "--seed is -1: must be at least 0"),
        (ServeBenchOptions(request_rate=0.0), "--request-rate is 0.0: must be above 0"),
        (ServeBenchOptions(vocab_size=10), "--vocab-size is 10"),
        (ServeBenchOptions(output_file=Path("/nowhere/x.json")), "there is no folder /nowhere"),
    ],
)
def test_options_that_cannot_be(options: ServeBenchOptions, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_workload(options)


def test_a_broken_dataset_is_named(tmp_path: Path) -> None:
    file = tmp_path / "broken.jsonl"
    file.write_text('{"history": 3}')
    with pytest.raises(ConfigError, match=r"broken\.jsonl can't be read as a dataset"):
        load_workload(ServeBenchOptions(dataset="mt-bench-101", dataset_path=file))
