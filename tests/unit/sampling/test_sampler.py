"""The sampler as a whole: distributions, greedy, batch independence, and rows that can't be sampled."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from radixserve.req import Req
from radixserve.sampling.sampler import NO_TOKEN, Sampler
from radixserve.sampling_params import SamplingParams

MakeReq = Callable[..., Req]
Naive = Callable[[np.ndarray, SamplingParams], np.ndarray]

VOCAB = 1500
"""More than the largest partial selection, so that every stage is reached."""


def peaked(seed: int = 0, scale: float = 2.0) -> torch.Tensor:
    return torch.randn(VOCAB, generator=torch.Generator().manual_seed(seed)) * scale


FILTERS = [
    {},
    {"temperature": 0.5},
    {"temperature": 1.7},
    {"top_k": 1},
    {"top_k": 10},
    {"top_k": 64},
    {"top_k": 65},
    {"top_k": 1200},
    {"top_k": 10**9},
    {"top_p": 0.1},
    {"top_p": 0.5},
    {"top_p": 0.95},
    {"top_p": 0.999},
    {"min_p": 0.5},
    {"min_p": 0.02},
    {"min_p": 0.0001},
    {"top_k": 40, "top_p": 0.9, "min_p": 0.05, "temperature": 0.8},
    {"top_k": 200, "top_p": 0.8},
    {"top_p": 0.9, "min_p": 0.01, "temperature": 1.3},
]


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_draws_follow_the_naive_distribution(filters: dict[str, float], make_req: MakeReq, naive_distribution: Naive) -> None:
    """Chi-square over 4,000 requests with seeds 0 to 3,999; tokens expected fewer than 5 times are counted as one."""
    draws = 4000
    logits = peaked()
    reqs = [make_req(arrival, **filters) for arrival in range(draws)]
    token_ids = Sampler().sample(logits.repeat(draws, 1), reqs).token_ids
    expected = naive_distribution(logits.numpy(), reqs[0].params) * draws
    counts = np.bincount(token_ids, minlength=VOCAB)
    assert counts[expected == 0].sum() == 0
    common = expected >= 5
    pairs = [*zip(counts[common], expected[common], strict=True), (counts[~common].sum(), expected[~common].sum())]
    terms = [(count - mean) ** 2 / mean for count, mean in pairs if mean > 0]
    freedom = len(terms) - 1
    assert sum(terms) <= freedom + 5 * np.sqrt(2 * freedom)


def test_greedy_takes_the_largest_and_the_lowest_id_of_ties(make_req: MakeReq) -> None:
    logits = torch.zeros(3, VOCAB)
    logits[0, 700] = 1
    logits[1, [900, 30, 31]] = 2
    for params in (
        {"temperature": 0.0},
        {"temperature": 1e-6},
        {"temperature": 1.0, "top_k": 1},
        {"top_p": 1e-300},
        {"min_p": 1.0},
    ):
        assert Sampler().sample(logits.clone(), [make_req(i, **params) for i in range(3)]).token_ids[:1] == [700], params
    assert Sampler().sample(logits, [make_req(i, temperature=0.0) for i in range(3)]).token_ids == [700, 30, 0]


@pytest.mark.parametrize("params", [{"top_k": 3}, {"top_k": 100}, {"top_p": 0.002}, {"top_p": 0.1}])
def test_ties_at_the_edge_keep_the_lowest_ids(params: dict[str, float], make_req: MakeReq) -> None:
    """All tokens are equally likely: what is kept are the first ones, though a partial selection returns any of them."""
    kept = int(params.get("top_k", 0) or round(params["top_p"] * VOCAB))
    reqs = [make_req(arrival, **params) for arrival in range(20 * kept)]
    token_ids = Sampler().sample(torch.zeros(len(reqs), VOCAB), reqs).token_ids
    assert set(token_ids) == set(range(kept))


MATES = [
    {"temperature": 0.0},
    {},
    {"temperature": 0.7},
    {"top_k": 5},
    {"top_k": 500},
    {"top_p": 0.3},
    {"top_p": 0.99},
    {"min_p": 0.1},
    {"top_k": 50, "top_p": 0.95, "min_p": 0.01, "temperature": 0.8, "seed": 11},
    {"repetition_penalty": 1.3, "prompt": (3, 4, 5), "output": (5, 6)},
    {"presence_penalty": 1.0, "frequency_penalty": 0.5, "output": (7, 7, 8)},
    {"logit_bias": {9: 5.0, 1499: -100.0}},
    {"min_tokens": 3, "stop_ids": (0, 1), "temperature": 2.0},
    {"logprobs": 3},
    {"logprobs": 20, "top_p": 0.9, "seed": -5},
    {"temperature": 1.5, "top_p": 0.999, "output": (1, 2, 3)},
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_row_alone_equals_the_row_in_a_batch(dtype: torch.dtype, make_req: MakeReq) -> None:
    reqs = [make_req(arrival, **mate) for arrival, mate in enumerate(MATES)]
    for round_number in range(20):
        logits = torch.stack([peaked(100 * round_number + row) for row in range(len(reqs))]).to(dtype)
        together = Sampler().sample(logits.clone(), reqs)
        alone = [Sampler().sample(logits[row : row + 1].clone(), [req]) for row, req in enumerate(reqs)]
        assert together.token_ids == [one.token_ids[0] for one in alone]
        assert together.logprobs == [one.logprobs[0] for one in alone]


def test_a_draw_depends_on_seed_and_position_alone(make_req: MakeReq) -> None:
    def draw(arrival: int, **params: object) -> int:
        return Sampler().sample(peaked(scale=0.1)[None], [make_req(arrival, **params)]).token_ids[0]

    assert draw(1, seed=5) == draw(2, seed=5)
    assert draw(5) == draw(9, seed=5)
    assert len({draw(0, seed=5, output=(0,) * position) for position in range(50)}) > 40
    assert len({draw(0, seed=seed) for seed in range(50)}) > 40


def test_one_candidate_and_a_tiny_vocabulary(make_req: MakeReq) -> None:
    banned = torch.full((4, VOCAB), -torch.inf)
    banned[:, 77] = -3.0
    reqs = [make_req(0), make_req(1, top_p=0.9), make_req(2, temperature=0.0), make_req(3, top_k=50, temperature=90.0)]
    assert Sampler().sample(banned, reqs).token_ids == [77] * 4
    for params in ({}, {"top_k": 50}, {"top_p": 0.5}, {"min_p": 0.2}):
        assert Sampler().sample(torch.zeros(1, 1), [make_req(0, **params)]).token_ids == [0]


@pytest.mark.parametrize("params", [{"temperature": 0.0}, {}, {"top_k": 9}, {"top_p": 0.7}, {"logprobs": 2}])
def test_a_broken_row_is_marked_and_harms_no_other(params: dict[str, float], make_req: MakeReq) -> None:
    logits = torch.stack([peaked(seed) for seed in range(5)])
    logits[1, 40] = torch.nan
    logits[2, 41] = torch.inf
    logits[3] = -torch.inf
    reqs = [make_req(row, **params) for row in range(5)]
    healthy = [Sampler().sample(logits[row : row + 1].clone(), [reqs[row]]).token_ids[0] for row in (0, 4)]
    result = Sampler().sample(logits, reqs)
    assert result.token_ids == [healthy[0], NO_TOKEN, NO_TOKEN, NO_TOKEN, healthy[1]]
    assert result.logprobs[1:4] == [None] * 3
