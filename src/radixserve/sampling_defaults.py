"""How a model wants to be sampled where a request doesn't say."""

from typing import Any

import msgspec

from radixserve.sampling_params import SamplingParams


class SamplingDefaults(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a model's files state of SamplingParams, under its names; None: nothing, so the neutral value counts."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None

    @property
    def stated(self) -> dict[str, Any]:
        """The fields that are not None."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}

    def params(self, **given: Any) -> SamplingParams:
        """SamplingParams of what was `given`, which counts even where it is neutral, else of what is stated here."""
        return SamplingParams(**(self.stated | given))

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:g}" for name, value in self.stated.items())
