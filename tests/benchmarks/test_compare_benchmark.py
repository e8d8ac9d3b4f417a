"""`python -m benchmarks.compare`: prompts of exact lengths, the order of runs, ratios, and the whole of it against stub servers."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from string import ascii_lowercase
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, processors

from benchmarks.compare import processor_use as compare_load
from benchmarks.compare.processor_use import LoadMeter, wait_until_quiet
from benchmarks.compare.result import MeasuredRun, Result, find_warnings
from benchmarks.compare.run import CompareOptions, Server, in_turn, run
from benchmarks.compare.workloads import MADE_UP, ComparedWorkload, WordPrompts, make_workloads
from radixserve.bench.record import Record
from radixserve.bench.report import summarize
from radixserve.errors import ConfigError
from radixserve.text.tokenizer import Tokenizer
from tests.unit.bench.stub_server import Stub, serving


class WordStub(Stub):
    """A token a word."""

    def ids(self, content: Any) -> list[int]:
        return [7] * len(content.split())


def write_tokenizer(path: Path, *, num_words: int = 1200, starts_with: str = "") -> Path:
    """A vocabulary of words of three letters; `starts_with` is a special token put before each text."""
    words = ["Ġ" + "".join(letters) for letters in islice(product(ascii_lowercase, repeat=3), num_words)]
    backend = Backend(models.WordLevel({word: i for i, word in enumerate(["<unk>", "<s>", *words])}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<unk>", "<s>"])
    if starts_with:
        backend.post_processor = processors.TemplateProcessing(
            single=f"{starts_with} $A", pair=f"{starts_with} $A $B", special_tokens=[(starts_with, 1)]
        )
    backend.save(str(path / "tokenizer.json"))
    return path


@pytest.fixture(scope="module")
def tokenizer_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def prompts(tokenizer_path: Path) -> WordPrompts:
    return WordPrompts(Tokenizer.load(tokenizer_path))


@pytest.fixture
def options(tokenizer_path: Path) -> CompareOptions:
    return CompareOptions(
        tokenizer=tokenizer_path, num_requests=3, max_concurrency=2, prefix_len=6, question_len=2, output_len=5, wait_quiet_s=0.0
    )


def texts(compared: ComparedWorkload) -> list[str]:
    return [str(session.turns[0].content) for session in compared.workload.sessions]


def made(options: CompareOptions, prompts: WordPrompts, rep: int = 0) -> dict[str, ComparedWorkload]:
    return {compared.name: compared for compared in make_workloads(MADE_UP, prompts, options, rep)}


def test_workloads_have_their_lengths_and_share_what_they_promise(options: CompareOptions, prompts: WordPrompts) -> None:
    found = made(options, prompts)
    lengths = {name: {len(text.split()) for text in texts(compared)} for name, compared in found.items()}
    assert lengths == {"shared": {8}, "warm": {8}, "unique": {8}, "single": {32}, "decode8": {32}, "prefill": {8}}
    assert [len(texts(found[name])) for name in MADE_UP] == [3, 3, 3, 1, 8, 1]
    assert [found[name].reusable_len for name in MADE_UP] == [12, 18, 0, 0, 0, 0]
    answers = {name: {session.turns[0].max_tokens for session in found[name].workload.sessions} for name in MADE_UP}
    assert answers == {"shared": {5}, "warm": {5}, "unique": {5}, "single": {128}, "decode8": {128}, "prefill": {1}}
    prefixes = {name: {text[: 6 * 4] for text in texts(found[name])} for name in ("shared", "warm", "unique")}
    assert prefixes["shared"] == prefixes["warm"]
    assert len(prefixes["shared"]) == 1
    assert len(prefixes["unique"]) == 3
    everything = [text for name in MADE_UP for text in texts(found[name])]
    assert len(set(everything)) == len(everything)


def test_prompts_depend_on_seed_and_rep_alone(options: CompareOptions, prompts: WordPrompts) -> None:
    first = made(options, prompts)
    assert first == made(options, prompts)
    assert first["unique"] == make_workloads(["unique"], prompts, options, 0)[0]
    for other in (made(options, prompts, rep=1), made(replace(options, seed=1), prompts)):
        assert not {text[: 6 * 4] for text in texts(first["shared"])} & {text[: 6 * 4] for text in texts(other["shared"])}


def test_special_tokens_count_in_the_length(tmp_path: Path, options: CompareOptions) -> None:
    tokenizer = Tokenizer.load(write_tokenizer(tmp_path, starts_with="<s>"))
    for compared in make_workloads(MADE_UP, WordPrompts(tokenizer), options, 0):
        assert {len(tokenizer.encode(text)) for text in texts(compared)} == {compared.prompt_len}


def test_a_vocabulary_of_few_words_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="10 words of one token: prompts need 1000"):
        WordPrompts(Tokenizer.load(write_tokenizer(tmp_path, num_words=10)))


def test_runs_are_interleaved_and_the_first_server_changes(options: CompareOptions, prompts: WordPrompts) -> None:
    servers = [Server("ours", "", None), Server("peer", "", None)]
    reps = [make_workloads(["shared", "warm"], prompts, options, rep) for rep in range(2)]
    order = [(rep, compared.name, server.name) for rep, compared, server in in_turn(servers, reps)]
    assert order[:4] == [(0, "shared", "ours"), (0, "shared", "peer"), (0, "warm", "ours"), (0, "warm", "peer")]
    assert order[4:6] == [(1, "shared", "peer"), (1, "shared", "ours")]
    assert len(order) == 8


def measured(rep: int, server: str, tokens: int, errors: Sequence[str] = (), workload: str = "shared") -> MeasuredRun:
    record = Record(session=0, turn=0, start_s=0.0, end_s=1.0, chunk_s=(0.5,), prompt_tokens=10, completion_tokens=tokens)
    return MeasuredRun(
        rep=rep,
        workload=workload,
        server=server,
        summary=summarize([record], 1.0),
        foreign_cores=None,
        client_cores=0.0,
        errors=tuple(errors),
    )


def test_ratios_are_taken_run_by_run() -> None:
    runs = [measured(0, "ours", 30), measured(0, "peer", 10), measured(1, "peer", 20), measured(1, "ours", 20)]
    runs += [measured(2, "ours", 50), measured(2, "peer", 1, errors=["ServerError: 500"])]
    result = Result(runs, ["ours", "peer"])
    assert result.ratios("shared", "peer") == [3.0, 1.0]
    found = result.to_json()
    assert found["ratios"] == [{"workload": "shared", "peer": "peer", "runs": [3.0, 1.0], "median": 2.0}]
    assert [one["tokens_per_s"] for one in found["medians"]] == [30.0, 15.0]
    assert len(found["runs"]) == 6


def test_prefill_is_measured_in_prompt_tokens() -> None:
    assert measured(0, "ours", 1, workload="prefill").tokens_per_s == 10.0
    assert measured(0, "ours", 1).tokens_per_s == 1.0


def test_what_spoils_a_run_is_told(options: CompareOptions, prompts: WordPrompts) -> None:
    compared = made(options, prompts)["unique"]
    record = Record(session=0, turn=0, start_s=0.0, end_s=1.0, prompt_tokens=8, cached_tokens=0, completion_tokens=5)
    good = [record] * 3
    assert find_warnings(compared, summarize(good, 1.0), 0.1, True) == ()
    spoiled = [replace(record, prompt_tokens=9, cached_tokens=3, completion_tokens=4)] * 3
    assert find_warnings(compared, summarize(spoiled, 1.0), 0.2, False) == (
        "the machine was never quiet before it",
        "anything else used 0.20 cores: measure again",
        "27 prompt tokens, not 3 x 8: another tokenizer",
        "12 answer tokens, not 3 x 5: ended early",
        "9 tokens cached of 0 shared: seen before, set another --seed",
    )


def test_the_servers_own_time_is_not_foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = iter([(10.0, 4.0, 1.0), (30.0, 18.0, 3.0)])  # machine, server, client; CPU seconds
    wall_s = iter([0.0, 10.0])
    monkeypatch.setattr(LoadMeter, "_cpu_s", lambda self: next(clocks))
    monkeypatch.setattr(compare_load, "time", SimpleNamespace(perf_counter=lambda: next(wall_s)))
    load = LoadMeter(1).read()
    assert (load.client, load.foreign) == pytest.approx((0.2, 0.4))


def test_a_server_counts_with_its_children() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass\n"
    parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])\nprint(flush=True)\nsys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout
        server.stdout.readline()
        assert compare_load.tree_s(server.pid) >= 0.2  # of 0.3: counted in ticks, rounded down
        assert server.stdin
        server.stdin.close()
    assert compare_load.tree_s(server.pid) == 0.0


def test_a_machine_that_is_never_quiet_is_waited_for_no_longer_than_asked() -> None:
    assert asyncio.run(wait_until_quiet(None, 0.0)) is False


def test_compare_runs_all_on_all(options: CompareOptions, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output_file = tmp_path / "compare.json"
    ours, peer = WordStub(cached_tokens=0), WordStub(cached_tokens=0)
    with serving(ours) as url, serving(peer) as peer_url:
        options = replace(options, ours=url, peer=(f"peer={peer_url}/v1",), reps=2, json=True, output_file=output_file)
        options = replace(options, pid=(f"ours={os.getppid()}",))
        assert run(options) == 0
    result = json.loads(capsys.readouterr().out)
    assert json.loads(output_file.read_text()) == result
    assert len(result["runs"]) == 6 * 2 * 2
    assert {(one["workload"], one["peer"], len(one["runs"])) for one in result["ratios"]} == {(name, "peer", 2) for name in MADE_UP}
    assert {one["foreign_cores"] is None for one in result["runs"] if one["server"] == "peer"} == {True}
    assert all(one["foreign_cores"] >= 0 for one in result["runs"] if one["server"] == "ours")
    assert result["models"] == {"ours": "stub", "peer": "stub"}
    first = next(one for one in result["runs"] if one["workload"] == "shared")
    assert (first["summary"]["prompt_tokens"], first["summary"]["completion_tokens"]) == (24, 15)
    assert sorted(body["prompt"] for body in ours.bodies) == sorted(body["prompt"] for body in peer.bodies)
    body = ours.bodies[-1]
    assert (body["ignore_eos"], body["temperature"], "return_token_ids" in body) == (True, 0.0, False)


def write_recordings(folder: Path, sessions: int) -> dict[str, Path]:
    """Agent sessions of prompts of 1, 2, ... 5 words, and dialogues of two turns."""
    agent, chats = folder / "agent", folder / "chats.jsonl"
    agent.mkdir()
    for number in range(sessions):
        steps = [{"timestamp": step, "input": f" zz{ascii_lowercase[number]}" + " abc" * step} for step in range(5)]
        (agent / f"{number:02}.jsonl").write_text("\n".join(map(json.dumps, steps)))
    lines = [{"history": [{"user": f"first {number}", "bot": "-"}, {"user": "second", "bot": "-"}]} for number in range(sessions)]
    chats.write_text("\n".join(map(json.dumps, lines)))
    return {"agent_path": agent, "chats_path": chats}


class ChatStub(WordStub):
    """Takes messages too."""

    def ids(self, content: Any) -> list[int]:
        return super().ids(content if isinstance(content, str) else " ".join(message["content"] for message in content))


def test_recorded_sessions_are_sent_as_they_are_and_none_twice(
    options: CompareOptions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, peer = ChatStub(), ChatStub()
    with serving(ours) as url, serving(peer) as peer_url:
        options = replace(options, ours=url, peer=(f"peer={peer_url}",), reps=2, json=True, workloads="agent,chats")
        options = replace(options, agent_sessions=2, agent_max_len=8, **write_recordings(tmp_path, 6))
        assert run(options) == 0
    result = json.loads(capsys.readouterr().out)
    assert [one["warnings"] for one in result["runs"]] == [["the machine was never quiet before it"]] * 8
    assert result["notes"] == {"agent": "4 sessions cut at 8 tokens: 8 steps left out"}
    prompts = [body["prompt"] for body in ours.bodies if "prompt" in body and body["max_tokens"] == 5]
    assert sorted(prompts) == sorted(f" zz{ascii_lowercase[number]}" + " abc" * step for number in range(4) for step in range(3))
    asked = [[message["role"] for message in body["messages"]] for body in ours.bodies if "messages" in body]
    assert sorted(asked) == [["user"]] * 6 + [["user", "assistant", "user"]] * 6
    assert len(peer.bodies) == len(ours.bodies)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"agent_path": None}, "--workloads has agent: set --agent-path to its recording"),
        ({"chats_path": Path("/nowhere.jsonl")}, "--chats-path /nowhere.jsonl: there is no such file"),
        ({"agent_sessions": 3}, "--agent-path has 5 sessions that fit: 2 reps need 6, .*lower --reps or --agent-sessions"),
        ({"agent_sessions": 1}, "--chats-path has 5 sessions that fit: 2 reps need 6, .*lower --reps or --num-requests"),
        ({"agent_max_len": 0}, "--agent-max-len is 0: must be at least 1"),
    ],
)
def test_recordings_that_are_missing_or_too_short_are_told(
    options: CompareOptions, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    options = replace(options, reps=2, workloads="agent,chats", agent_sessions=2, **write_recordings(tmp_path, 5))
    with pytest.raises(ConfigError, match=message):
        run(replace(options, **changes))


def test_a_table_names_what_failed(options: CompareOptions, capsys: pytest.CaptureFixture[str]) -> None:
    class FailsLongAnswers(WordStub):
        async def answer(self, request: Any) -> Any:
            self.broken = "status" if (await request.json())["max_tokens"] == 128 else ""
            return await super().answer(request)

    with serving(WordStub()) as url, serving(FailsLongAnswers()) as peer_url:
        options = replace(options, ours=url, peer=(f"peer={peer_url}",), reps=1, workloads="unique,single")
        assert run(options) == 1
    captured = capsys.readouterr()
    assert ["single", "peer", "failed"] in [line.split() for line in captured.out.splitlines()]
    assert "500" in captured.err


def test_a_peer_that_cannot_be_measured_is_told_before_all_runs(options: CompareOptions) -> None:
    broken = WordStub()
    broken.broken = "status"
    with (
        serving(WordStub()) as url,
        serving(broken) as peer_url,
        pytest.raises(ConfigError, match=r"peer at .* can't be measured: .*500"),
    ):
        run(replace(options, ours=url, peer=(f"peer={peer_url}",)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"peer": ("vllm",)}, "--peer is 'vllm': must be NAME=VALUE"),
        ({"peer": ("a=x", "a=y")}, "--peer names 'a' twice"),
        ({"peer": ("ours=x",)}, "--peer names 'ours' twice"),
        ({"pid": ("vllm=3",)}, "--pid names vllm: known are ours"),
        ({"pid": ("ours=x",)}, "--pid has 'x': must be the number of a process that runs"),
        ({"pid": (f"ours={2**22 + 1}",)}, "must be the number of a process that runs"),
        ({"workloads": "shared,cold"}, "--workloads has 'cold': choose from shared, warm"),
        ({"workloads": "warm,shared"}, "warm without shared before it"),
        ({"reps": 0}, "--reps is 0: must be at least 1"),
        ({"output_file": Path("/nowhere/x.json")}, "there is no folder /nowhere"),
    ],
)
def test_options_that_cannot_be(options: CompareOptions, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(replace(options, **changes))


def test_a_prefix_needs_a_word_of_its_own(options: CompareOptions, prompts: WordPrompts) -> None:
    with pytest.raises(ConfigError, match="--prefix-len is 0: must be above 0"):
        make_workloads(["shared"], prompts, replace(options, prefix_len=0), 0)
