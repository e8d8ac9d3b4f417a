"""guidellm and aiperf, as a user runs them. `make conformance` installs them in an environment of their own."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from radixserve.text.gguf_tokenizer import load_gguf
from tests.server.running import ROOT, RunningServer

BIN = ROOT / ".venv-conformance/bin"
MODEL = "smollm2-135m"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tokenizer_dir(default_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tokenizer of the served model, in the form that these tools read."""
    folder = tmp_path_factory.mktemp("tokenizer")
    spec = load_gguf(default_model_dir)
    PreTrainedTokenizerFast(tokenizer_object=spec.backend, **spec.special_tokens).save_pretrained(folder)
    return folder


def run_tool(name: str, *args: str, folder: Path) -> str:
    """What it prints. Skips where it isn't installed."""
    if not (BIN / name).exists():
        pytest.skip(f"{name} is not installed: run `make conformance`")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(BIN / name), *args], capture_output=True, text=True, check=False, cwd=folder, env=environment, timeout=240
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_guidellm(server: RunningServer, tokenizer_dir: Path, tmp_path: Path) -> None:
    run_tool(
        "guidellm",
        "run",
        *("--backend", f"kind=openai_http,target={server.url}"),
        *("--tokenizer", f"kind=hf_auto,model={tokenizer_dir}"),
        *("--data", "kind=synthetic_text,prompt_tokens=32,output_tokens=6"),
        *("--profile", "kind=concurrent,streams=2"),
        *("--constraint", "kind=max_requests,count=4"),
        *("--output", f"kind=json,path={tmp_path / 'report.json'}"),
        "--disable-console",
        folder=tmp_path,
    )
    (benchmark,) = json.loads((tmp_path / "report.json").read_text())["benchmarks"]
    totals: dict[str, Any] = benchmark["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"], totals["incomplete"]) == (4, 0, 0)
    assert {request["output_metrics"]["text_tokens"] for request in benchmark["requests"]["successful"]} == {6}


def test_aiperf(server: RunningServer, tokenizer_dir: Path, tmp_path: Path) -> None:
    run_tool(
        "aiperf",
        "profile",
        *("--model", MODEL, "--url", server.url, "--tokenizer", str(tokenizer_dir)),
        *("--endpoint-type", "chat", "--streaming", "--use-server-token-count"),
        *("--concurrency", "2", "--request-count", "4", "--isl", "32", "--osl", "6"),
        *("--extra-inputs", "ignore_eos:true", "--extra-inputs", "min_tokens:6"),
        *("--ui", "none", "--no-gpu-telemetry", "--output-artifact-dir", str(tmp_path / "out")),
        folder=tmp_path,
    )
    result = json.loads((tmp_path / "out/profile_export_aiperf.json").read_text())
    assert result["request_count"]["avg"] == 4
    assert result["output_sequence_length"]["avg"] == 6
    seen = json.loads((tmp_path / "out/server_metrics_export.json").read_text())
    assert any(name.startswith("radixserve_") for name in seen["metrics"])
