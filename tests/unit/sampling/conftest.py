"""Requests and a naive sampler to compare with."""

from collections.abc import Callable

import numpy as np
import pytest

from radixserve.req import Req
from radixserve.sampling_params import SamplingParams
from radixserve.tokens import token_bytes

MakeReq = Callable[..., Req]


@pytest.fixture
def make_req() -> MakeReq:
    """make_req(arrival, prompt=, output=, stop_ids=, **params)"""

    def make(
        arrival: int = 0,
        *,
        prompt: tuple[int, ...] = (1,),
        output: tuple[int, ...] = (),
        stop_ids: tuple[int, ...] = (),
        **params: object,
    ) -> Req:
        return Req(
            rid=str(arrival),
            arrival=arrival,
            prompt=token_bytes(list(prompt)),
            prompt_len=len(prompt),
            params=SamplingParams(**params),  # type: ignore[arg-type]
            max_tokens=100,
            stop_ids=frozenset(stop_ids),
            output_ids=list(output),
        )

    return make


@pytest.fixture
def naive_distribution() -> Callable[[np.ndarray, SamplingParams], np.ndarray]:
    """Probabilities [V] that logits [V] and parameters mean, computed the plain way in float64."""

    def distribution(logits: np.ndarray, params: SamplingParams) -> np.ndarray:
        scaled = logits.astype(np.float64) / params.temperature
        probs = np.exp(scaled - scaled.max())
        probs /= probs.sum()
        order = np.lexsort((np.arange(len(probs)), -probs))
        if params.top_k:
            probs[order[params.top_k :]] = 0
            probs /= probs.sum()
        if params.top_p < 1:
            before = probs[order].cumsum() - probs[order]
            probs[order[before >= params.top_p]] = 0
        probs[probs < params.min_p * probs.max()] = 0
        return probs / probs.sum()

    return distribution
