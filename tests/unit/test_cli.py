"""The command line: help, exit codes, flags that reach the settings."""

import dataclasses
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from radixserve.cli import main
from radixserve.cli.options import SamplingOptions
from radixserve.config import EngineConfig, ServerConfig
from radixserve.errors import ConfigError
from radixserve.sampling_defaults import SamplingDefaults
from radixserve.sampling_params import Grammar, SamplingParams

COMMANDS = [
    "serve",
    "chat",
    "generate",
    "pull",
    "bench serve",
    "bench profile",
    "demo",
    "info",
    "simulate",
]


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of one command."""
    code: int | str | None = 0
    try:
        main(args)
    except SystemExit as exit_:
        code = exit_.code
    out, err = capsys.readouterr()
    assert isinstance(code, int)
    return code, out, err


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[EngineConfig, ServerConfig]]:
    """What `radixserve serve` was asked to serve, instead of serving it."""
    calls: list[tuple[EngineConfig, ServerConfig]] = []

    def record(engine: EngineConfig, server: ServerConfig) -> int:
        calls.append((engine, server))
        return 0

    monkeypatch.delenv("RADIXSERVE_API_KEY", raising=False)
    monkeypatch.setattr("radixserve.cli.serve.run_server", record)
    return calls


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains_and_gives_an_example(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, out, _ = run(capsys, *command.split(), "--help")
    assert code == 0
    assert out.count(f"radixserve {command}") >= 2  # in the usage line and in an example


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--help")
    for command in COMMANDS:
        assert command.split()[0] in out


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["serve", "--help"], ["chat", "--help"], ["generate", "--help"]])
def test_help_does_not_wait_for_torch(args: list[str]) -> None:
    program = (
        "import sys\nfrom radixserve.cli import main\n"
        f"try: main({args!r})\nexcept SystemExit: sys.exit('torch is loaded' if 'torch' in sys.modules else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=source_path(), check=False)
    assert done.returncode == 0, done.stderr


def source_path() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_every_setting_is_a_flag_of_serve_with_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "serve", "--help")
    for config in (EngineConfig, ServerConfig):
        for field in dataclasses.fields(config):
            assert f"--{field.name.replace('_', '-')}" in out
    assert "Tokens a page." in out


def test_flags_reach_the_settings(capsys: pytest.CaptureFixture[str], served: list[tuple[EngineConfig, ServerConfig]]) -> None:
    code, _, err = run(capsys, "serve", "--model", "m", "--num-slots", "77", "--no-prefix-cache", "--port", "9", "--grace-s", "0.5")
    assert (code, err) == (0, "")
    engine = EngineConfig(model="m", num_slots=77, prefix_cache=False)
    assert served == [(engine, ServerConfig(port=9, grace_s=0.5))]


def test_api_key_comes_from_the_environment_unless_it_is_a_flag(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, served: list[tuple[EngineConfig, ServerConfig]]
) -> None:
    monkeypatch.setenv("RADIXSERVE_API_KEY", "from the environment")
    run(capsys, "serve")
    run(capsys, "serve", "--api-key", "from the flag")
    assert [server.api_key for _, server in served] == ["from the environment", "from the flag"]


def test_a_setting_that_cannot_be_honoured_is_one_line_and_exit_1(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "pull", "no-such-model")
    assert (code, out) == (1, "")
    assert err.startswith("radixserve: ")
    assert "no-such-model" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["serve", "--prot", "9"], "--port"),
        (["serve", "--port", "nine"], "nine"),
        (["sreve"], "serve"),
        (["generate", "hi", "--max-tokn", "3"], "--max-tokens"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong(capsys: pytest.CaptureFixture[str], args: list[str], word: str) -> None:
    code, _, err = run(capsys, *args)
    assert code == 2
    assert word in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("flag", "value", "limit"),
    [
        ("--port", "99999", "between 0 and 65535"),
        ("--port", "-1", "between 0 and 65535"),
        ("--grace-s", "-1", "at least 0"),
        ("--grace-s", "nan", "at least 0"),
        ("--max-body-bytes", "0", "at least 1"),
    ],
)
def test_a_server_setting_out_of_range_is_one_line_and_exit_1(
    capsys: pytest.CaptureFixture[str], flag: str, value: str, limit: str
) -> None:
    code, out, err = run(capsys, "serve", "--model", "no-such-model", flag, value)
    assert (code, out) == (1, "")
    assert err.startswith(f"radixserve: {flag} is {value}: must be {limit}")
    assert err.count("\n") == 1


def test_a_form_of_tool_calls_that_the_model_is_not_taught_is_one_line_and_exit_1(
    capsys: pytest.CaptureFixture[str], tiny_model_dir: Path
) -> None:
    code, out, err = run(capsys, "serve", "--model", str(tiny_model_dir), "--port", "0", "--tool-parser", "llama3")
    assert (code, out) == (1, "")
    assert err.startswith("radixserve: --tool-parser is llama3")
    assert err.count("\n") == 1


def test_ctrl_c_is_quiet(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(engine: EngineConfig, server: ServerConfig) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("radixserve.cli.serve.run_server", interrupted)
    code, _, err = run(capsys, "serve")
    assert (code, err) == (130, "")


def test_waiting_threads_sleep_unless_the_user_says_otherwise(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    run(capsys, "--version")
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
    monkeypatch.delenv("OMP_WAIT_POLICY")
    run(capsys, "--version")
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"


def test_generate_prints_the_answers_as_json(capsys: pytest.CaptureFixture[str], tiny_model_dir: Path) -> None:
    args = ["--max-tokens", "4", "--temperature", "0", "--num-slots", "512", "--json"]
    code, out, _ = run(capsys, "generate", "one prefix, a", "one prefix, b", "--model", str(tiny_model_dir), *args)
    answers = json.loads(out)
    assert code == 0
    assert [answer["prompt"] for answer in answers] == ["one prefix, a", "one prefix, b"]
    assert all(1 <= answer["completion_tokens"] <= 4 for answer in answers)


def test_generate_reads_standard_input_and_takes_prompts_with_a_dash(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tiny_model_dir: Path
) -> None:
    args = ["--model", str(tiny_model_dir), "--max-tokens", "2", "--num-slots", "512", "--json"]
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe"))
    _, piped, _ = run(capsys, "generate", *args)
    _, dashed, _ = run(capsys, "generate", *args, "--", "- a list")
    assert [json.loads(out)[0]["prompt"] for out in (piped, dashed)] == ["from a pipe", "- a list"]


def test_a_request_that_cannot_be_served_is_one_line_and_exit_1(capsys: pytest.CaptureFixture[str], tiny_model_dir: Path) -> None:
    code, _, err = run(capsys, "generate", "hello", "--model", str(tiny_model_dir), "--num-slots", "512", "--temperature", "-1")
    assert code == 1
    assert "temperature is -1.0" in err
    assert err.count("\n") == 1


def test_chat_remembers_and_says_what_was_reused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tiny_model_dir: Path
) -> None:
    lines = iter(["hello", "and again", ""])
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    code, out, _ = run(capsys, "chat", "--model", str(tiny_model_dir), "--num-slots", "512", "--max-tokens", "4", "--seed", "0")
    reused = [int(line[1:].split()[0]) for line in out.splitlines() if line.endswith("prompt tokens reused]")]
    assert code == 0
    assert len(reused) == 2
    assert reused[1] > reused[0]


def test_info_is_json_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "info", "--json")
    assert code == 0
    assert {"radixserve", "torch", "cpu", "model cache", "smollm2-135m"} <= json.loads(out).keys()


def test_a_schema_in_a_file_becomes_a_grammar(tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text('{"type": "integer"}')
    assert SamplingOptions(json_schema=file).params(SamplingDefaults()).grammar == Grammar("json_schema", '{"type": "integer"}')
    assert SamplingOptions(regex="a+").params(SamplingDefaults()).grammar == Grammar("regex", "a+")
    assert SamplingOptions().params(SamplingDefaults()).grammar is None
    with pytest.raises(ConfigError, match=r"none\.json can't be read"):
        SamplingOptions(json_schema=tmp_path / "none.json").params(SamplingDefaults())
    with pytest.raises(ConfigError, match="choose one"):
        SamplingOptions(json_schema=file, regex="a").params(SamplingDefaults())


def test_flags_count_before_the_models_sampling_defaults() -> None:
    model = SamplingDefaults(temperature=0.2, top_k=20, min_p=0.1)
    assert SamplingOptions().params(model) == SamplingParams(max_tokens=256, temperature=0.2, top_k=20, min_p=0.1)
    asked = SamplingOptions(temperature=1.0, top_k=0, top_p=0.5).params(model)
    assert asked == SamplingParams(max_tokens=256, temperature=1.0, top_k=0, top_p=0.5, min_p=0.1)
    assert SamplingOptions().params(SamplingDefaults()) == SamplingParams(max_tokens=256, temperature=0.7)
