"""Whatever adapters share its batches and its pool, a request is answered as it would be alone, by an engine of its own."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from radixserve import kernels
from radixserve.config import EngineConfig
from radixserve.engine.build import build_engine
from radixserve.engine.engine import Engine
from radixserve.ipc import FlushRequest, GenerateRequest, Output, TokenLogprob
from radixserve.sampling_params import SamplingParams
from radixserve.tokens import token_bytes
from tests.tiny_adapters import make_tiny_adapter
from tests.tiny_models import make_tiny_model

ADAPTERS = (None, "all", "thin")
Question = tuple[str | None, bytes, int]
"""Adapter, prompt, max_tokens."""


def engine_of(folder: Path, names: tuple[str, ...], **settings: Any) -> Engine:
    flags = tuple(f"{name}={folder / name}" for name in names)
    return build_engine(EngineConfig(model=str(folder / "model"), adapter=flags, device="cpu", num_threads=1, **settings))


def answer(engine: Engine, arrivals: list[list[Question]], logprobs: int | None) -> dict[int, tuple[list[int], list[TokenLogprob]]]:
    """Sends each list before a step. Answers are numbered in order of arrival."""
    found: dict[int, tuple[list[int], list[TokenLogprob]]] = {}
    coming = list(arrivals)
    while coming or engine.has_work:
        for adapter, prompt, max_tokens in coming.pop(0) if coming else []:
            params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True, logprobs=logprobs)
            tokens = token_bytes(list(prompt))
            engine.receive(GenerateRequest(str(len(found)), tokens, params, adapter=adapter))
            found[len(found)] = ([], [])
        for output in engine.step():
            assert isinstance(output, Output)
            token_ids, scores = found[int(output.rid)]
            token_ids += output.token_ids
            scores += output.logprobs
    return found


class Alone:
    """Each question by an engine that has its adapter and no other, into an empty cache."""

    def __init__(self, folder: Path, logprobs: int | None, **settings: Any) -> None:
        self._engines = {name: engine_of(folder, (name,) if name else (), num_slots=512, **settings) for name in ADAPTERS}
        self._logprobs = logprobs
        self.answer = cache(self._answer)

    def _answer(self, question: Question) -> tuple[list[int], list[TokenLogprob]]:
        engine = self._engines[question[0]]
        engine.receive(FlushRequest("flush"))
        engine.step()
        return answer(engine, [[question]], self._logprobs)[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("batches")
    model = make_tiny_model(folder / "model")
    make_tiny_adapter(folder / "all", model, rank=8)
    make_tiny_adapter(folder / "thin", model, rank=3, targets=("v_proj", "down_proj"), seed=1)
    return folder


PROMPTS = [b"Why my code throws errors", b"Why my code is slow", b"Why GPU memory runs out", b"W"]
QUESTIONS = st.tuples(st.sampled_from(ADAPTERS), st.sampled_from(PROMPTS), st.integers(1, 6))
SCHEDULES = st.lists(st.lists(QUESTIONS, max_size=4), min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("kind", "logprobs"),
    [
        ({"dtype": "float64"}, None),
        pytest.param(
            {"dtype": "bfloat16", "kernels": "native"},
            3,
            marks=pytest.mark.skipif(kernels.NOT_BUILT is not None, reason=str(kernels.NOT_BUILT)),
        ),
    ],
    ids=["torch, float64", "native, to the last bit"],
)
def test_an_answer_does_not_depend_on_whose_adapters_share_its_batches(
    folder: Path, kind: dict[str, Any], logprobs: int | None
) -> None:
    alone = Alone(folder, logprobs, **kind)
    mixed = engine_of(folder, ("all", "thin"), num_slots=90, max_batch_tokens=24, max_running=5, decode_reserve=2, **kind)

    @given(schedule=SCHEDULES)
    @settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def check(schedule: list[list[Question]]) -> None:
        found = answer(mixed, schedule, logprobs)
        for number, question in enumerate(question for arrivals in schedule for question in arrivals):
            assert found[number] == alone.answer(question)
        mixed.cache.check()

    check()
