"""Rotary position embedding: which frequencies a model has, and the rotation of its heads.

Angles are computed in float32 whatever the model's dtype, as transformers does, for the positions of one step and for all layers
at once; or for the native kernels into a table that grows with the positions. So nothing bounds the context.
"""

import math
from typing import NamedTuple

import torch

from radixserve.models.config import RopeConfig


class Rotation(NamedTuple):
    """cos and sin of one step, [T, 1, head_dim / 2] in the model's dtype."""

    cos: torch.Tensor
    sin: torch.Tensor


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> torch.Tensor:
    """float32 [head_dim / 2]: radians a token, per pair of dimensions."""
    frequencies = 1.0 / (rope.theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim))
    if rope.freq_factors:
        frequencies = frequencies / torch.tensor(rope.freq_factors, dtype=torch.float32)
    if rope.rope_type == "linear":
        return frequencies / rope.factor
    if rope.rope_type == "llama3":
        return _llama3(frequencies, rope)
    if rope.rope_type == "yarn":
        return _yarn(frequencies, rope, head_dim)
    return frequencies


def _llama3(frequencies: torch.Tensor, rope: RopeConfig) -> torch.Tensor:
    """Llama 3.1: long wavelengths are stretched, short ones kept, those between blended (Meta's llama-models, apply_scaling)."""
    rotations = rope.original_context_len * frequencies / (2 * math.pi)
    kept = (rotations - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    return _blend(frequencies, rope.factor, kept.clamp(0, 1))


def _yarn(frequencies: torch.Tensor, rope: RopeConfig, head_dim: int) -> torch.Tensor:
    """YaRN, "NTK-by-parts" (arXiv 2309.00071, section 3.2), with the bounds in dimensions as its reference code has them."""

    def dimension(rotations: float) -> float:
        return head_dim * math.log(rope.original_context_len / (rotations * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = dimension(rope.beta_fast), dimension(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001
    ramp = (torch.arange(head_dim // 2, dtype=torch.float32) - low) / (high - low)
    return _blend(frequencies, rope.factor, 1 - ramp.clamp(0, 1))


def yarn_scale(factor: float, weight: float) -> float:
    """What YaRN multiplies cos and sin by (arXiv 2309.00071, section 3.4); `weight` is 1 in the paper."""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def _blend(frequencies: torch.Tensor, factor: float, kept: torch.Tensor) -> torch.Tensor:
    """`kept` [head_dim / 2]: 1 leaves a frequency alone, 0 divides it by `factor`."""
    return frequencies * kept + frequencies / factor * (1 - kept)


def rotation(positions: torch.Tensor, frequencies: torch.Tensor, scale: float, dtype: torch.dtype) -> Rotation:
    """`positions`: int64 [T]; `frequencies`: float32 [head_dim / 2]; `scale` multiplies cos and sin."""
    angles = (positions.to(torch.float32)[:, None] * frequencies)[:, None, :]
    return Rotation((angles.cos() * scale).to(dtype), (angles.sin() * scale).to(dtype))


def rotate(heads: torch.Tensor, by: Rotation) -> torch.Tensor:
    """Rotates [T, num_heads, head_dim]; dimension i is paired with i + head_dim / 2."""
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * by.cos - second * by.sin, second * by.cos + first * by.sin), dim=-1)
