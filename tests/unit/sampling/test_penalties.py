"""What a request changes in its logits."""

from collections.abc import Callable

import pytest
import torch

from radixserve.req import Req
from radixserve.sampling.penalties import adjust_logits
from radixserve.sampling.sampler import Sampler
from radixserve.sampling_params import SamplingParams

MakeReq = Callable[..., Req]


def adjusted(req: Req, values: list[float]) -> list[float]:
    """Of its row, alone and among others."""
    other = make_other()
    logits = torch.tensor([[0.5] * len(values), values, values, [0.5] * len(values)], dtype=torch.float64)
    adjust_logits(logits, [other, req, req, other])
    assert logits[0].tolist() == logits[3].tolist() == [0.5] * len(values)
    alone = torch.tensor([values], dtype=torch.float64)
    adjust_logits(alone, [req])
    assert logits[1].tolist() == logits[2].tolist() == alone[0].tolist()
    return alone[0].tolist()


def make_other() -> Req:
    """Changes nothing."""
    return Req("other", 9, b"", 0, SamplingParams(), 100, frozenset(), output_ids=[0, 1])


def test_nothing_asked_changes_nothing(make_req: MakeReq) -> None:
    assert adjusted(make_req(output=(0, 1), stop_ids=(2,)), [1.0, -2.0, 3.0]) == [1.0, -2.0, 3.0]


def test_repetition_counts_prompt_and_output_once_each(make_req: MakeReq) -> None:
    req = make_req(prompt=(0, 0, 1), output=(1, 2, 2), repetition_penalty=2.0)
    assert adjusted(req, [4.0, -4.0, 1.0, 8.0]) == [2.0, -8.0, 0.5, 8.0]


def test_presence_and_frequency_count_the_output_alone(make_req: MakeReq) -> None:
    req = make_req(prompt=(0, 0), output=(1, 2, 2), presence_penalty=0.5, frequency_penalty=0.25)
    assert adjusted(req, [1.0, 1.0, 1.0, 1.0]) == [1.0, 0.25, 0.0, 1.0]


def test_negative_penalties_encourage(make_req: MakeReq) -> None:
    assert adjusted(make_req(output=(1,), presence_penalty=-1.0, frequency_penalty=-0.5), [0.0, 0.0]) == [0.0, 1.5]


def test_bias_is_added_after_the_penalties(make_req: MakeReq) -> None:
    req = make_req(prompt=(1,), repetition_penalty=2.0, logit_bias={1: 3.0, 2: -100.0})
    assert adjusted(req, [1.0, 4.0, 1.0]) == [1.0, 5.0, -99.0]


@pytest.mark.parametrize(("output", "banned"), [((), True), ((5,), True), ((5, 5), False)])
def test_stop_tokens_are_banned_until_min_tokens(output: tuple[int, ...], banned: bool, make_req: MakeReq) -> None:
    req = make_req(output=output, min_tokens=2, stop_ids=(0, 99), logit_bias={0: 100.0}, temperature=0.0)
    token_id = Sampler().sample(torch.tensor([[9.0, 1.0, 0.0, 0.0, 0.0, 0.0]]), [req]).token_ids[0]
    assert token_id == (1 if banned else 0)


def test_all_tokens_banned_gives_no_token(make_req: MakeReq) -> None:
    req = make_req(min_tokens=1, stop_ids=(0, 1))
    assert Sampler().sample(torch.zeros(1, 2), [req]).token_ids == [-1]
