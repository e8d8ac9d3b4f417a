"""What the model gives to the tokens of a prompt: right whatever is cached, however it is chunked, and computed once."""

from pathlib import Path

import numpy as np
import pytest
import torch

from radixserve import LLM, SamplingParams
from radixserve.engine import model_runner
from radixserve.errors import InvalidRequestError
from radixserve.llm import Generation
from radixserve.models.loader import choose_operations, load_model
from radixserve.models.source import load_config
from tests.sequences import Sequences

PROMPT = np.random.default_rng(5).integers(0, 256, 90).astype(np.int32)


def make_llm(model: Path, **settings: object) -> LLM:
    return LLM(str(model), **{"device": "cpu", "dtype": "float64", "num_slots": 1000, "num_threads": 1, **settings})


@pytest.fixture(scope="module")
def llm(tiny_model_dir: Path) -> LLM:
    return make_llm(tiny_model_dir)


@pytest.fixture(scope="module")
def expected(tiny_model_dir: Path) -> torch.Tensor:
    """Row i: the log-softmax of the logits of token i of PROMPT, float64 [90, vocab_size]."""
    device = torch.device("cpu")
    operations, _ = choose_operations("torch", load_config(tiny_model_dir), torch.float64, device, "none")
    decoder = load_model(tiny_model_dir, torch.float64, device, operations)
    return Sequences(decoder, 1).extend({0: torch.from_numpy(PROMPT).long()}).log_softmax(-1)


def score(llm: LLM, prompt: np.ndarray = PROMPT, **fields: object) -> Generation:
    return llm.generate(prompt, SamplingParams(**{"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 2, **fields}))


@pytest.mark.parametrize("max_batch_tokens", [7, 512])
@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("start", [0, 40, 88, 89])
def test_cold_and_warm(
    tiny_model_dir: Path, expected: torch.Tensor, monkeypatch: pytest.MonkeyPatch, max_batch_tokens: int, page_size: int, start: int
) -> None:
    monkeypatch.setattr(model_runner, "MAX_SCORED_LOGITS", 5 * expected.shape[1])  # pieces of 5 tokens
    llm = make_llm(tiny_model_dir, max_batch_tokens=max_batch_tokens, page_size=page_size, num_slots=1008)
    for cached_tokens in (0, min(start, len(PROMPT) // page_size * page_size)):  # the tree holds whole pages
        generation = score(llm, logprob_start_len=start)
        assert generation.cached_tokens == cached_tokens
        assert [entry.token_id for entry in generation.prompt_logprobs] == PROMPT[start + 1 :].tolist()
        for row, entry in zip(expected[start:], generation.prompt_logprobs, strict=False):
            assert entry.logprob == pytest.approx(row[entry.token_id].item(), abs=1e-5)
            assert entry.rank == int((row > row[entry.token_id]).sum()) + 1
            values, ids = row.topk(2)
            assert [token_id for token_id, _ in entry.top] == ids.tolist()
            assert [value for _, value in entry.top] == pytest.approx(values.tolist(), abs=1e-5)


def test_a_token_that_is_generated_scores_the_same_as_one_that_is_given(llm: LLM) -> None:
    answer = llm.generate(PROMPT, SamplingParams(max_tokens=20, temperature=1.0, seed=1, logprobs=2, ignore_eos=True)).choices[0]
    whole = np.concatenate([PROMPT, np.array(answer.token_ids, dtype=np.int32)])
    scored = score(llm, whole, logprob_start_len=len(PROMPT) - 1)
    for given, generated in zip(scored.prompt_logprobs, answer.logprobs, strict=True):
        assert given.logprob == pytest.approx(generated.logprob, abs=1e-5)
        assert (given.token_id, given.rank) == (generated.token_id, generated.rank)


def test_choices_share_the_scored_prefill_too(llm: LLM) -> None:
    llm.flush()
    before = llm.engine.stats().computed_tokens
    cold = score(llm, n=4, max_tokens=2, temperature=1.0, ignore_eos=True)
    assert llm.engine.stats().computed_tokens - before == len(PROMPT) + 3 + 4
    warm = score(llm, n=4, max_tokens=2, temperature=1.0, ignore_eos=True)
    assert len(cold.prompt_logprobs) == len(PROMPT) - 1
    assert cold.prompt_logprobs == warm.prompt_logprobs


def test_no_tokens_at_all_computes_the_prompt_and_keeps_it(llm: LLM) -> None:
    llm.flush()
    generation = llm.generate(PROMPT, SamplingParams(max_tokens=0))
    assert (generation.text, generation.token_ids, generation.choices[0].finish_reason) == ("", [], "length")
    assert llm.generate(PROMPT, SamplingParams(max_tokens=1)).cached_tokens == len(PROMPT) - 1
    assert len(score(llm, max_tokens=0).prompt_logprobs) == len(PROMPT) - 1


def test_no_tokens_at_all_still_need_slots_for_the_prompt(tiny_model_dir: Path) -> None:
    llm = make_llm(tiny_model_dir, num_slots=len(PROMPT))
    assert llm.generate(PROMPT, SamplingParams(max_tokens=0, n=3)).text == ""
    with pytest.raises(InvalidRequestError, match="91 slots: the pool holds 90"):
        llm.generate(np.append(PROMPT, PROMPT[:1]), SamplingParams(max_tokens=0))


def test_a_start_beyond_the_prompt_is_refused(llm: LLM) -> None:
    with pytest.raises(InvalidRequestError, match="logprob_start_len is 90: must be below the prompt's 90 tokens"):
        score(llm, logprob_start_len=90)
