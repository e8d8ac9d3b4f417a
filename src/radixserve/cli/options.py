"""Flags that several commands share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from radixserve.config import EngineConfig
from radixserve.errors import ConfigError
from radixserve.sampling_defaults import SamplingDefaults
from radixserve.sampling_params import Grammar, SamplingParams

EngineFlags = Annotated[EngineConfig, Parameter(name="*", group=Group("Engine", sort_key=2))]
"""Model, cache and scheduler, as flags of their own."""

DEFAULT_TEMPERATURE = 0.7
"""Of a model that states none."""

API_KEY_VARIABLE = "RADIXSERVE_API_KEY"

JsonFlag = Annotated[bool, Parameter(name="--json", negative="", show_default=False, help="Print JSON.")]


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """The sampling parameters that are worth a flag; the API has all of them."""

    max_tokens: int = 256
    """Longest answer, in tokens."""

    temperature: float | None = None
    """0 always takes the likeliest token; by default the model's own, else 0.7."""

    top_p: float | None = None
    """Sample among the likeliest tokens that hold this share of the probability; by default the model's own, else 1."""

    top_k: int | None = None
    """Sample among this many of the likeliest tokens, 0 is all; by default the model's own, else 0."""

    seed: int | None = None
    """Makes the answer repeatable."""

    json_schema: Path | None = None
    """Hold the answer to the JSON schema in this file."""

    regex: str | None = None
    """Hold the answer to this regular expression."""

    def params(self, defaults: SamplingDefaults) -> SamplingParams:
        """The same as sampling parameters; the model's `defaults` where no flag is given.

        Raises ConfigError for a schema that can't be read.
        """
        flags = {"temperature": self.temperature, "top_p": self.top_p, "top_k": self.top_k}
        given = {name: value for name, value in flags.items() if value is not None}
        if defaults.temperature is None:
            given.setdefault("temperature", DEFAULT_TEMPERATURE)
        return defaults.params(max_tokens=self.max_tokens, seed=self.seed, grammar=self._grammar(), **given)

    def _grammar(self) -> Grammar | None:
        if self.json_schema is not None and self.regex is not None:
            raise ConfigError("--json-schema and --regex are both given: choose one")
        if self.regex is not None:
            return Grammar("regex", self.regex)
        if self.json_schema is None:
            return None
        try:
            return Grammar("json_schema", self.json_schema.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"--json-schema {self.json_schema} can't be read: {error}") from error


SamplingFlags = Annotated[SamplingOptions, Parameter(name="*", group=Group("Sampling", sort_key=1))]
