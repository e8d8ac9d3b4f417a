"""Log-probabilities are the model's own, whatever the request changes."""

from collections.abc import Callable

import pytest
import torch

from radixserve.req import Req
from radixserve.sampling.logprobs import score_tokens
from radixserve.sampling.sampler import Sampler

MakeReq = Callable[..., Req]


def test_raw_log_softmax_of_the_chosen_and_the_likeliest(make_req: MakeReq) -> None:
    logits = torch.randn(4, 300, generator=torch.Generator().manual_seed(3)) * 3
    expected = logits.log_softmax(-1)
    reqs = [
        make_req(0, logprobs=3, temperature=0.3, logit_bias={17: 100.0}),
        make_req(1),
        make_req(2, logprobs=0, temperature=0.0),
        make_req(3, logprobs=20, top_k=5, repetition_penalty=1.5, prompt=(1, 2, 3)),
    ]
    result = Sampler().sample(logits.clone(), reqs)
    assert result.token_ids[0] == 17
    assert result.logprobs[1] is None
    for row, count in ((0, 3), (2, 0), (3, 20)):
        entry = result.logprobs[row]
        assert entry is not None
        assert entry.token_id == result.token_ids[row]
        assert entry.logprob == pytest.approx(expected[row, entry.token_id].item(), abs=1e-5)
        values, ids = expected[row].topk(max(count, 1))
        assert [token_id for token_id, _ in entry.top] == ids.tolist()[:count]
        assert [value for _, value in entry.top] == pytest.approx(values.tolist()[:count], abs=1e-5)


def test_more_alternatives_than_tokens(make_req: MakeReq) -> None:
    entry = Sampler().sample(torch.zeros(1, 3), [make_req(logprobs=20)]).logprobs[0]
    assert entry is not None
    assert len(entry.top) == 3


@pytest.mark.parametrize("vocab_size", [50, 259, 49152])
def test_no_bit_depends_on_the_rows_beside_it(vocab_size: int) -> None:
    logits = torch.randn(33, vocab_size, generator=torch.Generator().manual_seed(5)) * 6
    token_ids = list(range(33))
    together = score_tokens(logits, token_ids, 3)
    assert together == [entry for i in token_ids for entry in score_tokens(logits[i : i + 1], [i], 3)]
    expected = logits.double().log_softmax(-1)
    for row, entry in zip(expected, together, strict=True):
        assert entry.logprob == pytest.approx(row[entry.token_id].item(), abs=1e-5)
        assert entry.rank == int((row > row[entry.token_id]).sum()) + 1
