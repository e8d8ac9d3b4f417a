"""On a real model: what a request answers does not depend on what was cached, chunked, batched, preempted or aborted before it."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from radixserve.config import EngineConfig
from radixserve.engine.build import build_engine
from radixserve.engine.engine import Engine
from radixserve.ipc import AbortRequest, FlushRequest, UpdateWeightsRequest
from tests.tiny_models import make_tiny_model
from tests.traffic import Traffic


def engine_of(model: Path, **settings: Any) -> Engine:
    defaults = {"dtype": "float64", "device": "cpu", "num_slots": 2000, "num_threads": 1, "max_batch_tokens": 512}
    return build_engine(EngineConfig(model=str(model), **{**defaults, **settings}))


def prompts(seed: int, count: int, prefix_len: int) -> list[list[int]]:
    """Prompts over byte tokens; neighbours share `prefix_len` tokens with the group's first."""
    rng = np.random.default_rng(seed)
    shared = rng.integers(0, 256, prefix_len).tolist()
    return [shared + rng.integers(0, 256, int(rng.integers(1, 30))).tolist() for _ in range(count)]


def solo_answers(model: Path, all_prompts: list[list[int]], max_tokens: int, **settings: Any) -> list[list[int]]:
    """Each request alone, without a cache."""
    engine = engine_of(model, prefix_cache=False, max_running=1, **settings)
    traffic = Traffic(engine)
    rids = [traffic.send(prompt, max_tokens) for prompt in all_prompts]
    traffic.run()
    return [traffic.answers[rid] for rid in rids]


def answers(traffic: Traffic, all_prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
    rids = [traffic.send(prompt, max_tokens) for prompt in all_prompts]
    traffic.run()
    return [traffic.answers[rid] for rid in rids]


@pytest.fixture(scope="module")
def forty(tiny_model_dir: Path) -> tuple[list[list[int]], list[list[int]]]:
    """Forty prompts in four groups, and what each is answered alone."""
    all_prompts = [prompt for seed in range(4) for prompt in prompts(seed, 10, 20 * seed + 3)]
    expected = solo_answers(tiny_model_dir, all_prompts, 8)
    assert len({tuple(answer) for answer in expected}) > 20  # the model does not answer everything alike
    return all_prompts, expected


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("max_batch_tokens", [7, 512])
def test_cold_warm_and_flushed(
    tiny_model_dir: Path, forty: tuple[list[list[int]], list[list[int]]], page_size: int, max_batch_tokens: int
) -> None:
    all_prompts, expected = forty
    engine = engine_of(tiny_model_dir, page_size=page_size, max_batch_tokens=max_batch_tokens, num_slots=8000)
    traffic = Traffic(engine)
    assert answers(traffic, all_prompts, 8) == expected
    before = engine.stats().cached_tokens
    assert answers(traffic, all_prompts, 8) == expected
    warm = engine.stats().cached_tokens - before
    assert warm >= sum(len(p) - 1 for p in all_prompts) * (0.95 if page_size == 1 else 0.7)
    engine.receive(FlushRequest("flush"))
    traffic.run()
    first = traffic.send(all_prompts[0], 8)
    traffic.run()
    assert traffic.cached[first] == 0
    assert traffic.answers[first] == expected[0]


@pytest.mark.parametrize("page_size", [1, 4])
def test_preempted(tiny_model_dir: Path, page_size: int) -> None:
    """Case: a preempted request resumed with a stale length and then hit the cache."""
    all_prompts = prompts(9, 32, 64)
    expected = solo_answers(tiny_model_dir, all_prompts, 24)
    engine = engine_of(tiny_model_dir, page_size=page_size, num_slots=320, decode_reserve=0, max_running=32)
    traffic = Traffic(engine)
    assert answers(traffic, all_prompts, 24) == expected
    assert engine.stats().num_preemptions > 0


def test_aborted_then_resent(tiny_model_dir: Path, forty: tuple[list[list[int]], list[list[int]]]) -> None:
    all_prompts, expected = forty
    engine = engine_of(tiny_model_dir, max_batch_tokens=16)
    traffic = Traffic(engine)
    for num_steps in range(12):  # before the first forward, between chunks, while decoding
        rid = traffic.send(all_prompts[39], 8)
        for _ in range(num_steps):
            traffic.step()
        engine.receive(AbortRequest(rid))
        traffic.step()
        assert engine.cache.protected_size == engine.cache.request_size == 0
    assert answers(traffic, all_prompts[30:], 8) == expected[30:]


def test_a_pool_that_fits_one_prompt(tiny_model_dir: Path) -> None:
    """Case: a slot that was given to another stayed reachable under its old key."""
    x, y = prompts(5, 1, 90)[0][:90], prompts(6, 1, 90)[0][:90]
    expected = solo_answers(tiny_model_dir, [x, y], 6)
    traffic = Traffic(engine_of(tiny_model_dir, num_slots=100))
    for _ in range(3):
        assert answers(traffic, [x], 6) == [expected[0]]
        assert answers(traffic, [y], 6) == [expected[1]]


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("length", [1, 16, 32])
def test_a_prompt_that_is_wholly_cached(tiny_model_dir: Path, page_size: int, length: int) -> None:
    """Case: a fully cached prompt left no token to run."""
    prompt = prompts(3, 1, 40)[0][:length]
    expected = solo_answers(tiny_model_dir, [prompt], 5)
    traffic = Traffic(engine_of(tiny_model_dir, page_size=page_size))
    for _ in range(3):
        assert answers(traffic, [prompt], 5) == expected
    assert answers(traffic, [prompt] * 4, 5) == expected * 4
    assert max(traffic.cached.values()) == length - 1


@pytest.mark.parametrize("family", ["mistral", "qwen2", "qwen3"])
def test_every_family(tmp_path: Path, family: str) -> None:
    model = make_tiny_model(tmp_path / family, family)
    all_prompts = prompts(1, 6, 50)
    expected = solo_answers(model, all_prompts, 8)
    traffic = Traffic(engine_of(model, max_batch_tokens=24))
    assert answers(traffic, all_prompts, 8) == expected
    assert answers(traffic, all_prompts, 8) == expected


def update(traffic: Traffic, rid: str, model: str) -> None:
    """Asks for other weights and goes on until they are swapped, or can't be."""
    read = threading.Event()
    traffic.engine.notify(read.set)
    traffic.engine.receive(UpdateWeightsRequest(rid, model))
    traffic.run()
    assert read.wait(timeout=60)
    traffic.run()


def test_other_weights_never_meet_old_kv(tmp_path: Path, tiny_model_dir: Path) -> None:
    """Case: a weight update kept the KV of the old weights."""
    other = make_tiny_model(tmp_path / "other", seed=1)
    prompt = prompts(2, 1, 60)
    old, new = solo_answers(tiny_model_dir, prompt, 8), solo_answers(other, prompt, 8)
    assert old != new
    engine = engine_of(tiny_model_dir)
    traffic = Traffic(engine)
    assert answers(traffic, prompt, 8) == old
    rid = traffic.send(prompt[0], 8)
    traffic.step()
    engine.receive(UpdateWeightsRequest("busy", str(other)))
    traffic.run()
    assert traffic.ended["busy"] == "busy"
    assert traffic.answers[rid] == old[0]
    update(traffic, "idle", str(other))
    assert "idle" not in traffic.ended
    rid = traffic.send(prompt[0], 8)
    traffic.run()
    assert traffic.cached[rid] == 0
    assert traffic.answers[rid] == new[0]
    update(traffic, "missing", str(tmp_path / "nowhere"))
    assert traffic.ended["missing"] == "invalid_request"
    assert answers(traffic, prompt, 8) == new


def test_a_salt_separates_and_reuses(tiny_model_dir: Path) -> None:
    """Case: a shared prefix cache lets one tenant learn another's prompts."""
    prompt = prompts(7, 1, 60)[0]
    traffic = Traffic(engine_of(tiny_model_dir))
    hits = []
    for salt in ("a", "a", "b", None):
        rid = traffic.send(prompt, 2, salt=salt)
        traffic.run()
        hits.append(traffic.cached[rid])
    assert hits == [0, len(prompt) - 1, 0, 0]


def test_batch_mates_and_seeds(tiny_model_dir: Path) -> None:
    """A seeded request samples the same alone and in company, cold and warm."""
    engine = engine_of(tiny_model_dir)
    traffic = Traffic(engine)
    prompt = prompts(8, 1, 30)[0]
    alone = traffic.send(prompt, 20, temperature=1.0, seed=5)
    traffic.run()
    together = [traffic.send(prompt, 20, temperature=1.0, seed=seed) for seed in (4, 5, 6)]
    traffic.send(prompts(8, 1, 90)[0], 20, temperature=0.5, seed=5)
    traffic.run()
    assert traffic.answers[together[1]] == traffic.answers[alone]
    assert len({tuple(traffic.answers[rid]) for rid in together}) == 3
