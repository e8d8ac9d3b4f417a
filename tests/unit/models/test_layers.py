"""Norm, linear and rotation against their definitions."""

import pytest
import torch
from torch.nn.functional import linear
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from radixserve.models.config import RopeConfig
from radixserve.models.layers import Linear, RMSNorm
from radixserve.models.rope import inverse_frequencies, rotate, rotation


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_norm_rounds_as_transformers_does(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    x = (torch.randn(50, 64, generator=generator) * 10).to(dtype)
    weight = torch.randn(64, generator=generator).to(dtype)
    reference = LlamaRMSNorm(64, eps=1e-5).to(dtype)
    reference.load_state_dict({"weight": weight})
    torch.testing.assert_close(RMSNorm(weight, 1e-5)(x), reference(x).detach(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("num_inputs", [96, 1536])
@pytest.mark.parametrize("num_tokens", [0, 1, 3, 17, 64])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
def test_linears_compute_the_product(num_inputs: int, num_tokens: int, biased: bool, dtype: torch.dtype, tolerance: float) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = (torch.randn(48, num_inputs, generator=generator) / num_inputs**0.5).to(dtype)
    bias = torch.randn(48, generator=generator).to(dtype) if biased else None
    x = torch.randn(num_tokens, num_inputs, generator=generator).to(dtype)
    exact = linear(x.double(), weight.double(), bias.double() if bias is not None else None)
    torch.testing.assert_close(Linear(weight, bias)(x).double(), exact, rtol=tolerance, atol=5 * tolerance)


@pytest.mark.parametrize(
    "rope",
    [
        RopeConfig(theta=10000.0),
        RopeConfig(theta=10000.0, rope_type="linear", factor=2.0),
        RopeConfig(theta=5e5, rope_type="llama3", factor=8.0, original_context_len=256),
        RopeConfig(theta=1e6, rope_type="yarn", factor=4.0, original_context_len=256),
    ],
)
def test_scores_depend_on_the_distance_alone(rope: RopeConfig) -> None:
    frequencies = inverse_frequencies(rope, 32)
    q, k = torch.randn(2, 1, 1, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def score(q_position: int, k_position: int) -> float:
        by = rotation(torch.tensor([q_position, k_position]), frequencies, 1.0, torch.float64)
        rotated_q, rotated_k = rotate(torch.cat((q, k)), by)
        return float((rotated_q * rotated_k).sum())

    assert score(17, 10) == pytest.approx(score(107, 100), abs=1e-4)
    assert score(17, 10) != pytest.approx(score(17, 11), abs=1e-2)
    assert score(5, 5) == pytest.approx(float((q * k).sum()), abs=1e-6)
