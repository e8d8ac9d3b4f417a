"""Flags that several commands share."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Group, Parameter

from radixserve.config import EngineConfig
from radixserve.sampling_params import SamplingParams

EngineFlags = Annotated[EngineConfig, Parameter(name="*", group=Group("Engine", sort_key=2))]
"""Model, cache and scheduler, as flags of their own."""

API_KEY_VARIABLE = "RADIXSERVE_API_KEY"

JsonFlag = Annotated[bool, Parameter(name="--json", negative="", show_default=False, help="Print JSON.")]


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """The sampling parameters that are worth a flag; the API has all of them."""

    max_tokens: int = 256
    """Longest answer, in tokens."""

    temperature: float = 0.7
    """0 always takes the likeliest token."""

    top_p: float = 1.0
    """Sample among the likeliest tokens that hold this share of the probability."""

    top_k: int = 0
    """Sample among this many of the likeliest tokens; 0 is all."""

    seed: int | None = None
    """Makes the answer repeatable."""

    def params(self) -> SamplingParams:
        """The same as sampling parameters."""
        return SamplingParams(
            max_tokens=self.max_tokens, temperature=self.temperature, top_p=self.top_p, top_k=self.top_k, seed=self.seed
        )


SamplingFlags = Annotated[SamplingOptions, Parameter(name="*", group=Group("Sampling", sort_key=1))]
