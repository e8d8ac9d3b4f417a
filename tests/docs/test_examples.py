"""Every example runs as a user runs it, and prints what it promises."""

import contextlib
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
CACHED = re.compile(r"(\d+) of (\d+) (?:prompt )?(?:tokens )?cached")


def run_example(name: str, *args: str) -> str:
    """What it prints; stderr is shown when it fails."""
    return run_python(str(EXAMPLES / name), *args)


def run_python(*args: str) -> str:
    command = [sys.executable, *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    assert done.returncode == 0, done.stderr
    return done.stdout


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_WAIT_POLICY": "PASSIVE"}


def cached_shares(printed: str) -> list[tuple[int, int]]:
    """(cached, prompt) tokens of each answer."""
    return [(int(cached), int(prompt)) for cached, prompt in CACHED.findall(printed)]


@pytest.fixture(scope="module")
def server_url(tiny_model_dir: Path) -> Iterator[str]:
    """A server that was started from the command line."""
    with served(str(tiny_model_dir)) as url:
        yield url


@pytest.fixture(scope="module")
def tool_server_url(default_model_dir: Path) -> Iterator[str]:
    """A server of the default model."""
    with served(str(default_model_dir)) as url:
        yield url


@contextlib.contextmanager
def served(model: str) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-u", "-m", "radixserve.cli", "serve", "--model", model, "--port", str(port)]
    command += ["--num-slots", "4096"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment())
    assert process.stdout is not None
    url = f"http://127.0.0.1:{port}"
    printed = []
    for line in process.stdout:
        printed.append(line)
        if url in line:
            break
    else:
        pytest.fail("".join(printed))
    yield url
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_examples_are_short() -> None:
    assert all(len(path.read_text().splitlines()) < 40 for path in EXAMPLES.glob("*.py"))


def test_every_example_is_run_here() -> None:
    mentioned = Path(__file__).read_text()
    assert all(f'"{path.name}"' in mentioned for path in EXAMPLES.glob("*.py"))


def test_walkthrough_tells_its_four_times() -> None:
    assert cached_shares(run_example("walkthrough.py")) == [(0, 5), (1, 5), (3, 5), (3, 5)]


@pytest.mark.usefixtures("default_model_dir")
def test_offline_computes_the_shared_prefix_once() -> None:
    shares = cached_shares(run_example("offline.py"))
    assert len(shares) == 4
    assert sum(cached > 0 for cached, _ in shares) == 3


@pytest.mark.usefixtures("default_model_dir")
def test_branching_shares_the_prefix() -> None:
    *drafts, ending = cached_shares(run_example("branching.py"))
    assert [cached for cached, _ in drafts][1:] == [prompt - 1 for _, prompt in drafts][1:]
    assert ending[0] > drafts[0][1]


@pytest.mark.usefixtures("default_model_dir")
def test_chat_history_reuses_all_earlier_turns() -> None:
    first, second, third = cached_shares(run_example("chat_history.py"))
    assert second[0] >= first[1]
    assert third[0] >= second[1]


@pytest.mark.usefixtures("default_model_dir")
def test_python_in_the_readme_runs() -> None:
    programs = re.findall(r"^```python\n(.*?)^```", (EXAMPLES.parent / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(programs) == 1
    assert len(run_python("-c", programs[0])) > 20


def test_openai_client_sees_the_second_question_reuse_the_first(server_url: str) -> None:
    (cold, _), (warm, _) = cached_shares(run_example("openai_client.py", server_url))
    assert cold == 0
    assert warm > 0


def test_five_misses_are_explained_by_five_reasons() -> None:
    reasons = re.findall(r"^    (\w+) at ", run_example("explain_misses.py"), re.MULTILINE)
    first, rounded, elsewhere, _, computing, _, evicted = reasons
    told = (first, rounded, elsewhere, computing, evicted)
    assert told == ("never_seen", "page_rounding", "other_namespace", "computing", "evicted")


def check_the_second_reuses_the_first(printed: str) -> None:
    (_, first), (cached, second) = cached_shares(printed)
    assert second > first
    assert cached > first // 2


def test_tools_loop_calls_the_function_and_goes_on_from_it(tool_server_url: str) -> None:
    printed = run_example("tools_loop.py", tool_server_url)
    assert re.search(r'called get_weather\({"city": "(Rome|Oslo)"}\): (sunny|snow)', printed)
    check_the_second_reuses_the_first(printed)


def test_json_schema_answers_are_what_was_asked_for(tool_server_url: str) -> None:
    printed = run_example("json_schema.py", tool_server_url)
    assert len(re.findall(r"Animal\(kind='\w+', legs=\d, can_fly=(?:True|False), sound=", printed)) == 3
    assert cached_shares(printed)[2][0] > 0


@pytest.mark.usefixtures("default_model_dir")
def test_what_if_predicts_more_from_more_slots() -> None:
    printed = run_example("what_if.py")
    assert "the same batches, hits and evictions" in printed
    least, *_, most = sorted(map(int, re.findall(r"(\d+)% reused", printed)))
    assert least < most == int(re.findall(r"an infinite cache: (\d+)%", printed)[0])


def test_anthropic_client_calls_a_tool_and_reads_the_cache(tool_server_url: str) -> None:
    printed = run_example("anthropic_client.py", tool_server_url)
    assert re.search(r"called get_weather\({'city': '(Rome|Oslo)'}\)", printed)
    check_the_second_reuses_the_first(printed)


def test_responses_client_goes_on_from_what_the_server_keeps(tool_server_url: str) -> None:
    (_, first), (second, middle), (third, _) = cached_shares(run_example("responses_client.py", tool_server_url))
    assert second > first
    assert third > middle
