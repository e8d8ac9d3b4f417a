"""On the native kernels answers, log probabilities and KV are those of a cold run alone, to the last bit, in any schedule."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from radixserve import kernels
from radixserve.config import EngineConfig
from radixserve.engine.build import build_engine
from radixserve.engine.engine import Engine
from radixserve.engine.model_runner import ModelRunner
from radixserve.ipc import AbortRequest, FlushRequest, GenerateRequest, Output, TokenLogprob
from radixserve.sampling_params import SamplingParams
from radixserve.tokens import as_ids, token_bytes
from tests.tiny_models import make_tiny_model

if kernels.NOT_BUILT is not None:
    pytest.skip(kernels.NOT_BUILT, allow_module_level=True)

MAX_PROMPT, MAX_TOKENS = 190, 12


@dataclass(frozen=True)
class Question:
    """What a request asks; `temperature` 1 samples with the seed; `scored_from`: where the prompt is scored, if at all."""

    prompt: tuple[int, ...]
    max_tokens: int
    temperature: float = 0.0
    seed: int = 0
    scored_from: int | None = None


@dataclass
class Answer:
    """Tokens, and of each the log probabilities of itself and of the five likeliest: floats that must be equal, not close."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)
    ended: str | None = None


class Exchange:
    """Asks an engine and keeps its answers."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.asked: list[Question] = []
        self.answers: list[Answer] = []

    def send(self, question: Question) -> None:
        params = SamplingParams(
            max_tokens=question.max_tokens,
            temperature=question.temperature,
            seed=question.seed,
            logprobs=5,
            prompt_logprobs=None if question.scored_from is None else 3,
            logprob_start_len=question.scored_from or 0,
            ignore_eos=True,
        )
        self.engine.receive(GenerateRequest(str(len(self.asked)), token_bytes(list(question.prompt)), params))
        self.asked.append(question)
        self.answers.append(Answer())

    def step(self) -> None:
        for output in self.engine.step():
            if isinstance(output, Output):
                answer = self.answers[int(output.rid)]
                answer.token_ids += output.token_ids
                answer.logprobs += output.logprobs
                answer.prompt_logprobs += output.prompt_logprobs
                answer.ended = output.finish_reason

    def run(self) -> None:
        while self.engine.has_work:
            self.step()


def native_engine(model: Path, **options: Any) -> Engine:
    """num_threads is set for the process, at every step: an engine of another number may have been built since."""
    return build_engine(EngineConfig(model=str(model), dtype="bfloat16", device="cpu", kernels="native", **options))


def set_threads(n: int) -> None:
    torch.set_num_threads(n)
    kernels.set_num_threads(n)


@pytest.fixture(autouse=True)
def restored_threads() -> Iterator[None]:
    n = torch.get_num_threads()
    yield
    set_threads(n)


class Cold:
    """Each question alone, by one thread, in one chunk, into an empty cache."""

    def __init__(self, model: Path, quantization: str = "none") -> None:
        self._engine = native_engine(
            model, quantization=quantization, num_slots=2048, max_batch_tokens=1024, max_running=1, num_threads=1
        )
        self.answer = cache(self._answer)

    def _answer(self, question: Question) -> Answer:
        self._engine.receive(FlushRequest("flush"))
        set_threads(1)
        exchange = Exchange(self._engine)
        exchange.send(question)
        exchange.run()
        return exchange.answers[0]

    def kv(self, tokens: bytes) -> torch.Tensor:
        """K and V of a sequence, computed as one prompt."""
        self._answer(Question(tuple(as_ids(tokens).tolist()), 1))
        return kv_in_cache(self._engine, tokens)


def kv_in_cache(engine: Engine, tokens: bytes) -> torch.Tensor:
    """Bits of K and V of a cached sequence, [2, num_layers, num_tokens, num_kv_heads, head_dim]."""
    lease = engine.cache.acquire(tokens)
    slots = torch.from_numpy(lease.slots[: lease.tree_len].astype(np.int64))
    engine.cache.release(lease)
    assert len(slots) * 4 == len(tokens)
    runner = engine.runner
    assert isinstance(runner, ModelRunner)
    return torch.stack([buffer[:, slots] for buffer in (runner.pool.k_buffer, runner.pool.v_buffer)]).view(torch.int16)


def cached_sequences(engine: Engine) -> list[bytes]:
    """All that the tree holds, from its root to each leaf."""
    sequences = []
    for _, leaf in engine.cache.walk():
        if not leaf.children:
            node, tokens = leaf, b""
            while node.parent is not None:
                tokens = node.key + tokens
                node = node.parent
            sequences.append(tokens)
    return sequences


def check(exchange: Exchange, cold: Cold) -> None:
    """Every answer that ended is the cold one; what was aborted is its beginning."""
    for question, answer in zip(exchange.asked, exchange.answers, strict=True):
        expected = cold.answer(question)
        assert answer.ended in {"length", "abort"} or not answer.token_ids
        num_tokens = question.max_tokens if answer.ended == "length" else len(answer.token_ids)
        assert answer.token_ids == expected.token_ids[:num_tokens]
        assert answer.logprobs == expected.logprobs[:num_tokens]
        if answer.token_ids:
            assert answer.prompt_logprobs == expected.prompt_logprobs
            if question.scored_from is not None:
                assert len(answer.prompt_logprobs) == len(question.prompt) - 1 - question.scored_from


def check_kv(engine: Engine, cold: Cold) -> None:
    for tokens in cached_sequences(engine):
        assert torch.equal(kv_in_cache(engine, tokens), cold.kv(tokens))


FAMILIES = ("llama", "mistral", "qwen3")
Tiny = dict[tuple[str, str], tuple[Path, Cold]]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """A tiny model of each kind that computes differently: plain, with a window of 24 tokens, with norms of q and k."""
    models = {name: make_tiny_model(tmp_path_factory.mktemp("bitwise") / name, name) for name in FAMILIES}
    return {  # each as it is and in int8
        (name, quantization): (model, Cold(model, quantization))
        for name, model in models.items()
        for quantization in ("none", "int8")
    }


questions = st.builds(
    lambda shared, own, max_tokens, temperature, seed, scored: Question(
        tuple([i * 7 % 251 for i in range(shared)] + own), max_tokens, temperature, seed, (0, shared, None)[min(scored, 2)]
    ),
    st.sampled_from([0, 1, 20, 63, 64, 65, 128, 150]),
    st.lists(st.integers(0, 3), min_size=1, max_size=MAX_PROMPT - 150),
    st.integers(1, MAX_TOKENS),
    st.sampled_from([0.0, 0.0, 1.0]),
    st.integers(0, 3),
    st.integers(0, 5),
)
actions = st.one_of(
    st.tuples(st.just("send"), questions),
    st.tuples(st.just("step"), st.integers(1, 8)),
    st.tuples(st.just("threads"), st.integers(1, 3)),
    st.tuples(st.just("abort"), st.integers(0, 20)),
    st.tuples(st.just("flush")),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    family=st.sampled_from(FAMILIES),
    quantization=st.sampled_from(["none", "none", "int8"]),
    script=st.lists(actions, min_size=3, max_size=30),
    page_size=st.sampled_from([1, 1, 4, 16]),
    pool_pages=st.integers(0, 600),
    budget=st.sampled_from([1, 7, 64, 512]),
    max_running=st.sampled_from([1, 3, 12]),
    prefix_cache=st.sampled_from([True, True, True, False]),
)
def test_bitwise_equal_to_a_cold_run_in_any_schedule(
    tiny: Tiny, family: str, quantization: str, script: list[tuple], page_size: int, pool_pages: int, budget: int,
    max_running: int, prefix_cache: bool,
) -> None:  # fmt: skip
    model, cold = tiny[family, quantization]
    largest = -(-(MAX_PROMPT + MAX_TOKENS) // page_size)
    engine = native_engine(
        model, quantization=quantization, num_slots=page_size * max(pool_pages, largest), page_size=page_size,
        max_batch_tokens=budget, max_running=max_running, decode_reserve=0, prefix_cache=prefix_cache,
    )  # fmt: skip
    exchange = Exchange(engine)
    for action, *arguments in script:
        if action == "send":
            exchange.send(arguments[0])
        elif action == "step":
            for _ in range(arguments[0]):
                exchange.step()
        elif action == "threads":
            set_threads(arguments[0])
        elif action == "abort":
            engine.receive(AbortRequest(str(arguments[0])))
        else:
            engine.receive(FlushRequest("flush"))
    exchange.run()
    check(exchange, cold)
    check_kv(engine, cold)


@pytest.mark.parametrize("page_size", [1, 4])
def test_bitwise_equal_after_preemption(tiny: Tiny, page_size: int) -> None:
    model, cold = tiny["llama", "none"]
    engine = native_engine(model, num_slots=240, page_size=page_size, max_batch_tokens=64, max_running=24, decode_reserve=0)
    exchange = Exchange(engine)
    for i in range(24):
        exchange.send(Question((*range(70), i), 20, scored_from=(None, 0, 30)[i % 3]))
    exchange.run()
    assert engine.stats().num_preemptions > 0
    check(exchange, cold)
    check_kv(engine, cold)


@pytest.mark.parametrize(
    ("page_size", "budget", "threads", "quantization"), [(1, 512, 2, "none"), (16, 100, 1, "none"), (1, 100, 2, "int8")]
)
def test_bitwise_equal_on_the_default_model(
    default_model_dir: Path, page_size: int, budget: int, threads: int, quantization: str
) -> None:
    """Prompts that share up to 200 tokens, at once and again when all is cached, while decodes and chunks mix."""
    engine = native_engine(
        default_model_dir, quantization=quantization, num_slots=4096, page_size=page_size, max_batch_tokens=budget, max_running=8
    )
    cold = Cold(default_model_dir, quantization)
    rng = np.random.default_rng(page_size)
    shared = rng.integers(1000, 40000, 200).tolist()
    asked = [
        Question((*shared[:n], *rng.integers(1000, 40000, own).tolist()), 6, temperature, seed=3)
        for n, own, temperature in ((200, 30, 0.0), (200, 64, 1.0), (129, 5, 0.0), (64, 1, 1.0), (0, 90, 0.0), (200, 1, 0.0))
    ]
    asked.append(replace(asked[0], scored_from=0))
    asked.append(replace(asked[1], scored_from=150))
    exchange = Exchange(engine)
    for question in asked:
        exchange.send(question)
        set_threads(threads)
        exchange.step()
    exchange.run()
    for question in asked:
        exchange.send(question)
    exchange.run()
    assert engine.stats().cached_tokens > 1000
    check(exchange, cold)
    check_kv(engine, cold)
