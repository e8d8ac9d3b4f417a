"""However a request ends, each of its slots is given back exactly once, and what it computed can be reused."""

from pathlib import Path

import pytest

from radixserve.ipc import AbortRequest, GenerateRequest, Output
from radixserve.sampling_params import SamplingParams
from radixserve.tokens import token_bytes
from tests.integration.test_cached_equals_uncached import engine_of
from tests.traffic import Traffic, check_balance

PROMPT = [5, 9, 2, 77, 31, 8, 120, 64, 3]


@pytest.fixture(scope="module")
def answer(tiny_model_dir: Path) -> list[int]:
    traffic = Traffic(engine_of(tiny_model_dir, prefix_cache=False))
    rid = traffic.send(PROMPT, 200)
    traffic.run()
    return traffic.answers[rid]


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("ending", ["length", "stop token", "stop string", "abort"])
def test_each_slot_is_given_back_once(tiny_model_dir: Path, answer: list[int], ending: str, page_size: int) -> None:
    """Case: two release paths each freed the last decode slot."""
    engine = engine_of(tiny_model_dir, max_batch_tokens=4, page_size=page_size)
    assert engine.tokenizer is not None
    # A token that comes late, so that the answer has begun, and text that only it completes.
    late = next(i for i in range(40, 200) if answer[i] not in answer[:i] and engine.tokenizer.decode([answer[i]]).strip())
    stop = engine.tokenizer.decode(answer[late - 2 : late + 1])
    params = {
        "length": SamplingParams(max_tokens=200, temperature=0, ignore_eos=True),
        "stop token": SamplingParams(max_tokens=200, temperature=0, ignore_eos=True, stop_token_ids=(answer[late],)),
        "stop string": SamplingParams(max_tokens=200, temperature=0, ignore_eos=True, stop=(stop,)),
        "abort": SamplingParams(max_tokens=200, temperature=0, ignore_eos=True),
    }[ending]
    for attempt in range(3):
        engine.receive(GenerateRequest(f"r{attempt}", token_bytes(PROMPT), params))
        outputs: list[Output] = []
        while engine.has_work:
            outputs += [output for output in engine.step() if isinstance(output, Output)]
            check_balance(engine)
            if ending == "abort" and len(outputs) == late:
                engine.receive(AbortRequest(f"r{attempt}"))
        got = [token_id for output in outputs for token_id in output.token_ids]
        assert got == answer[: 200 if ending == "length" else len(got)]
        assert outputs[-1].finish_reason == {"length": "length", "abort": "abort"}.get(ending, "stop")
        assert outputs[-1].stop_reason == {"stop token": answer[late], "stop string": stop}.get(ending)
        assert engine.cache.request_size == engine.cache.protected_size == 0
        assert engine.cache.free_size + engine.cache.evictable_size == engine.cache.num_slots
        assert outputs[0].cached_tokens == (0 if attempt == 0 else 8)
        if ending == "stop string":
            assert stop not in "".join(output.text for output in outputs)


def test_the_next_turn_finds_prompt_and_answer(tiny_model_dir: Path, answer: list[int]) -> None:
    """Output tokens are published too; the last one has no KV until it is fed back."""
    traffic = Traffic(engine_of(tiny_model_dir))
    traffic.send(PROMPT, 50)
    traffic.run()
    rid = traffic.send([*PROMPT, *answer[:50], 7, 7], 5)
    traffic.run()
    assert traffic.cached[rid] == len(PROMPT) + 49
