"""Low-rank additions to the products of a layer: what an adapter (LoRA, Hu et al. 2021) is made of.

Products that share their inputs are fused as the weights are: they get one `a` with all their ranks, and each a `b` that is zero
outside of its own. Adding a zero changes no sum, so the fused product gives what the parts would.
The native kernels keep no such zeros.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch


class LowRank(NamedTuple):
    """x A^T B^T on top of x W^T: `a` [rank, inputs], `b` [outputs, rank]; the adapter's scale is in `b`."""

    a: torch.Tensor
    b: torch.Tensor


class LayerLowRanks(NamedTuple):
    """What one adapter adds in one layer; None where it leaves a product alone. The two of `gate_up` share their `a`."""

    qkv: LowRank | None
    output: LowRank | None
    gate_up: tuple[LowRank, LowRank] | None
    down: LowRank | None

    @classmethod
    def of(cls, parts: dict[str, LowRank], sizes: dict[str, int]) -> "LayerLowRanks":
        """Of modules by name (q_proj, …), those that have an addition; `sizes`: outputs of all of them."""
        qkv = _sharing(parts, sizes, ("q_proj", "k_proj", "v_proj"))
        gate_up = _sharing(parts, sizes, ("gate_proj", "up_proj"))
        return cls(
            qkv=LowRank(qkv[0].a, torch.cat([part.b for part in qkv])) if qkv else None,
            output=parts.get("o_proj"),
            gate_up=(gate_up[0], gate_up[1]) if gate_up else None,
            down=parts.get("down_proj"),
        )


def _sharing(parts: dict[str, LowRank], sizes: dict[str, int], names: Sequence[str]) -> list[LowRank]:
    """One for each of `names`, with the same `a`; nothing when none of them has an addition."""
    given = {name: parts[name] for name in names if name in parts}
    if not given:
        return []
    a = torch.cat([part.a for part in given.values()])
    fused, begin = [], 0
    for name in names:
        b = a.new_zeros(sizes[name], len(a))
        if name in given:
            end = begin + given[name].b.shape[1]
            b[:, begin:end] = given[name].b
            begin = end
        fused.append(LowRank(a, b))
    return fused
