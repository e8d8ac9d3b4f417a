"""Draws are what sorting all of a row gives, however much of it is looked at, and however many rows at a time."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from radixserve.req import Req
from radixserve.sampling import distribution, select
from radixserve.sampling.sampler import Sampler, _draws
from radixserve.sampling_params import SamplingParams

MakeReq = Callable[..., Req]
VOCAB = 6000
NUCLEI = [
    {"top_p": 0.99},
    {"top_p": 0.95, "temperature": 1.2},
    {"top_p": 1 - 1e-9},
    {"min_p": 1e-3},
    {"min_p": 5e-324},
    {"top_p": 0.99, "min_p": 1e-4},
    {"top_k": 3000},
    {"top_k": 3000, "top_p": 0.9},
    {"top_p": 0.999, "top_k": VOCAB},
]


def rows(kind: str, count: int) -> torch.Tensor:
    """Logits of `count` rows, float32."""
    draw = torch.Generator().manual_seed(3)
    logits = torch.randn(count, VOCAB, generator=draw) * torch.linspace(0.1, 3, count)[:, None]
    match kind:
        case "coarse":  # as bfloat16 makes them: most are equal to some others
            return (logits * 8).round() / 8
        case "flat":
            return logits * 1e-6
        case "banned":
            return logits.masked_fill(torch.rand(count, VOCAB, generator=draw) < 0.7, -torch.inf)
    return logits


def naive(logits: torch.Tensor, params: SamplingParams, uniform: float) -> int:
    """One token of one row, by sorting all of it."""
    values = logits.double().numpy()
    order = np.lexsort((np.arange(len(values)), -values))
    weights = np.exp((values[order] - values.max()) / params.temperature)
    kept = min(params.top_k or VOCAB, VOCAB)
    sums = weights.cumsum()
    if params.top_p < 1:
        kept = min(kept, int((sums - weights < params.top_p * sums[kept - 1]).sum()))
    kept = max(1, min(kept, int((weights >= params.min_p).sum())))
    return int(order[min(int((sums[:kept] <= uniform * sums[kept - 1]).sum()), int((sums[:kept] < sums[kept - 1]).sum()))])


@pytest.mark.parametrize("kind", ["smooth", "coarse", "flat", "banned"])
@pytest.mark.parametrize("fields", NUCLEI, ids=str)
def test_nuclei_of_many_tokens_are_drawn_from_as_if_all_were_sorted(kind: str, fields: dict[str, float], make_req: MakeReq) -> None:
    logits = rows(kind, 40)
    reqs = [make_req(row, **fields) for row in range(len(logits))]
    uniform = _draws(reqs).uniform
    expected = [naive(row, req.params, number) for row, req, number in zip(logits, reqs, uniform, strict=True)]
    assert Sampler().sample(logits.clone(), reqs).token_ids == expected


@pytest.mark.parametrize("fields", [{}, {"top_p": 0.9}, {"min_p": 0.01}, {"logprobs": 7}, {"logprobs": 0}], ids=str)
def test_how_many_rows_are_worked_on_at_a_time_shows_nowhere(
    fields: dict[str, float], make_req: MakeReq, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = rows("smooth", 11)
    reqs = [make_req(row, **fields) for row in range(len(logits))]
    found = []
    for num_rows in (1, 4, 100):
        monkeypatch.setattr(select, "PIECE", num_rows * VOCAB // torch.get_num_threads())
        found.append(Sampler().sample(logits.clone(), reqs))
    assert found[0] == found[1] == found[2]


def test_the_vocabulary_is_sorted_for_no_nucleus_that_is_a_part_of_it(make_req: MakeReq, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    draw_ranks = distribution._draw_ranks
    monkeypatch.setattr(
        distribution, "_draw_ranks", lambda values, *rest: sizes.append(values.shape[1]) or draw_ranks(values, *rest)
    )
    logits = rows("smooth", 40)[20:]
    Sampler().sample(logits, [make_req(row, top_p=0.95, temperature=1.2) for row in range(20)])
    assert sum(size > 1024 for size in sizes) > 5
    assert VOCAB not in sizes
