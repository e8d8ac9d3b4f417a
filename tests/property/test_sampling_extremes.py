"""Every sampling parameter at its extremes, alone and together: a token, or a refusal that names the field."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from radixserve.errors import InvalidRequestError
from radixserve.req import Req
from radixserve.sampling.penalties import adjust_logits
from radixserve.sampling.sampler import Sampler
from radixserve.sampling_params import SamplingParams
from radixserve.tokens import token_bytes

VOCAB = 1100
"""More than the largest partial selection."""
TINY = 5e-324
EXTREMES = {
    "temperature": [0.0, -0.0, TINY, 1e-310, 1e-38, 1e-6, 1e-5, 1.1e-5, 1.0, 100.0, 101.0],
    "top_p": [TINY, 1e-310, 1e-38, 0.5, 1.0 - 2**-53, 1.0, 0.0],
    "top_k": [0, 1, 64, VOCAB - 1, VOCAB, 2**31, 2**63 - 1, 2**70, -1],
    "min_p": [0.0, TINY, 1e-38, 0.5, 1.0, -TINY],
    "repetition_penalty": [0.0, TINY, 1e-310, 1e-38, 1e-5, 0.01, 1.0 - 2**-53, 1.0, 100.0, 101.0],
    "presence_penalty": [-2.0, TINY, 0.0, 2.0, 2.1],
    "frequency_penalty": [-2.0, TINY, 0.0, 2.0, -2.1],
    "logit_bias": [
        {}, {3: 100.0}, {3: -100.0}, {3: TINY}, dict.fromkeys(range(1024), -100.0), {VOCAB: 1.0}, {-1: 1.0}, {3: 1e308}
    ],
    "seed": [None, 0, -1, 2**63 - 1, -(2**63), 2**63],
    "min_tokens": [0, 2, 5],
    "logprobs": [None, 0, 20],
}  # fmt: skip
LOGITS = st.lists(st.sampled_from([0.0, -0.0, 1e-45, 1.0, -1.0, 60.0, -1e4, 1e4, 1e30, -1e30, -np.inf]), min_size=9, max_size=9)


@st.composite
def requests(draw: st.DrawFn) -> Req:
    fields = draw(st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in EXTREMES.items()}))
    output = draw(st.lists(st.integers(0, 8), max_size=4))
    params = SamplingParams(**fields)
    return Req("0", 0, token_bytes([1, 2, 3]), 3, params, 100, frozenset({7}), output_ids=output)


def refusal(req: Req) -> InvalidRequestError | None:
    """Of its parameters, if they are out of range."""
    try:
        req.params.validate(VOCAB)
    except InvalidRequestError as error:
        return error
    return None


@given(reqs=st.lists(requests(), min_size=1, max_size=4), head=LOGITS, dtype=st.sampled_from([torch.float32, torch.float64]))
def test_what_is_accepted_is_answered(reqs: list[Req], head: list[float], dtype: torch.dtype) -> None:
    """With a token that is not banned, and log-probabilities that are numbers."""
    refusals = [refusal(req) for req in reqs]
    assert all(error.param in EXTREMES and error.message.startswith(error.param) for error in refusals if error is not None)
    reqs = [req for req, error in zip(reqs, refusals, strict=True) if error is None]
    row = torch.linspace(-5, 5, VOCAB, dtype=dtype)
    row[: len(head)] = torch.tensor(head, dtype=dtype)
    logits = row.repeat(len(reqs), 1)
    result = Sampler().sample(logits.clone(), reqs)
    adjust_logits(logits, reqs)
    for index, (req, token_id, logprob) in enumerate(zip(reqs, result.token_ids, result.logprobs, strict=True)):
        assert 0 <= token_id < VOCAB, req.params
        assert logits[index, token_id] > -torch.inf, req.params
        assert (logprob is None) == (req.params.logprobs is None)
        assert logprob is None or not np.isnan(logprob.logprob)


@pytest.mark.parametrize("value", [0.0, TINY, 1e-38, 0.0099, 100.1, float("nan"), float("inf")])
def test_a_repetition_penalty_out_of_range_is_refused(value: float) -> None:
    with pytest.raises(InvalidRequestError, match=r"must be between 0\.01 and 100"):
        SamplingParams(repetition_penalty=value).validate(VOCAB)
