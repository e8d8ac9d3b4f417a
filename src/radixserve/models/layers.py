"""The parts a decoder is made of. Weights are given at construction and never change in place."""

import torch
from torch.nn.functional import linear

SPLIT_INPUTS = 1024
"""From about this many inputs on, oneDNN may split the sum of a lone row, and so round it otherwise than in a batch."""


class Linear:
    """x W^T + b. `weight`: [outputs, inputs]; `bias`: [outputs] or None.

    On a CPU, float32 and bfloat16 weights are repacked once into oneDNN's own layout. That is faster than `linear` at almost every
    shape and number of tokens, and a token's result does not depend on how many there are; `docs/models.md` has the figures.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self._packed = _can_pack(weight)
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous()) if self._packed else weight
        self._bias = bias
        self._splits_lone_row = self._packed and weight.shape[1] >= SPLIT_INPUTS

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[T, inputs] to [T, outputs]."""
        if self._splits_lone_row and x.shape[0] == 1:
            return self(x.expand(2, -1))[:1]
        if self._packed:
            y: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
            return y
        return linear(x, self._weight, self._bias)


def _can_pack(weight: torch.Tensor) -> bool:
    """oneDNN has no float64, and bfloat16 only where the CPU has AVX512; `linear` computes the rest."""
    if weight.device.type != "cpu" or not torch._C._has_mkldnn:
        return False
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight.dtype == torch.float32


class RMSNorm:
    """x / rms(x) * weight over the last dimension, rounded as transformers rounds it.

    The quotient is computed in float32 (float64 stays) and rounded to x's dtype before it is multiplied by the weight.
    """

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        self._weight = weight
        self._eps = eps

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Any shape that the weight broadcasts to; the same shape and dtype come back."""
        wide = x if x.dtype == torch.float64 else x.float()
        variance = wide.square().mean(-1, keepdim=True)
        return (wide * torch.rsqrt(variance + self._eps)).to(x.dtype) * self._weight
