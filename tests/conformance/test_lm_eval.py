"""lm-evaluation-harness scores a task over /v1/completions as it does with transformers on the same weights.

It asks for `echo` with `logprobs` and takes its tokenizer from the server.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from radixserve.text.gguf_tokenizer import load_gguf
from tests.server.running import RunningServer

lm_eval = pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed: run `make conformance`")
from lm_eval.models.huggingface import HFLM  # noqa: E402
from lm_eval.models.openai_completions import LocalCompletionsAPI  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

CAPITALS = {
    "France": "Paris",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Japan": "Tokyo",
    "Egypt": "Cairo",
    "Cuba": "Havana",
}
SHOTS = "Answer with the name of a city.\n\n" + "".join(
    f"Question: What is the capital of {country}?\nAnswer: {city}\n\n"
    for country, city in (("Austria", "Vienna"), ("Peru", "Lima"), ("Norway", "Oslo"))
)


@pytest.fixture(scope="module")
def over_http(server: RunningServer) -> LocalCompletionsAPI:
    return LocalCompletionsAPI(
        base_url=f"{server.url}/v1/completions", model="smollm2-135m", tokenizer_backend="remote", batch_size=4, num_concurrent=1
    )


@pytest.fixture(scope="module")
def in_process(default_model_dir: Path) -> HFLM:
    """transformers reads the same file by itself."""
    spec = load_gguf(default_model_dir)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=spec.backend, **spec.special_tokens)
    folder, file = str(default_model_dir.parent), default_model_dir.name
    return HFLM(pretrained=folder, gguf_file=file, tokenizer=tokenizer, dtype="float32", device="cpu", batch_size=4)


def evaluate(lm: Any, folder: Path) -> dict[str, Any]:
    """The harness's own results of a multiple-choice task without downloads."""
    rows = [{"country": country, "choices": [*CAPITALS.values()], "answer": number} for number, country in enumerate(CAPITALS)]
    task = {
        "task": "capitals",
        "dataset_path": "json",
        "dataset_kwargs": {
            "data_files": {"test": str(write_json(folder / "capitals.json", rows))},
            "cache_dir": str(folder / "cache"),
        },
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": SHOTS + "Question: What is the capital of {{country}}?\nAnswer:",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "answer",
        "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
    }
    results = lm_eval.simple_evaluate(model=lm, tasks=[task], log_samples=True, bootstrap_iters=0)
    assert results is not None
    return results


def write_json(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_the_score_is_that_of_transformers(over_http: LocalCompletionsAPI, in_process: HFLM, tmp_path: Path) -> None:
    ours, theirs = evaluate(over_http, tmp_path), evaluate(in_process, tmp_path)
    assert ours["results"]["capitals"] == theirs["results"]["capitals"]
    assert ours["results"]["capitals"]["acc,none"] > 0.3
    for mine, reference in zip(ours["samples"]["capitals"], theirs["samples"]["capitals"], strict=True):
        for (logprob, greedy), (expected, expected_greedy) in zip(mine["filtered_resps"], reference["filtered_resps"], strict=True):
            assert float(logprob) == pytest.approx(float(expected), abs=2e-3)
            assert greedy == expected_greedy
