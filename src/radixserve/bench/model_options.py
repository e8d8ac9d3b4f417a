"""Options of the benches that load a model into their own process; the string under each field is its help."""

from dataclasses import dataclass
from typing import Any

from radixserve.config import Dtype, EngineConfig


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """What to load, and where it runs."""

    model: str = "smollm2-135m"
    """Name of a built-in model, a Hugging Face directory or hub name, or a GGUF file."""

    dtype: Dtype = "auto"
    """Of weights and KV."""

    device: str = "auto"
    """Where the model runs: cpu, cuda, cuda:1. auto: cuda when there is one."""

    num_threads: int | None = None
    """Threads of the model on a CPU; by default as many as the affinity mask gives."""

    def engine_config(self, **settings: Any) -> EngineConfig:
        """Of an engine of this model. `settings`: its other fields, where they aren't the defaults."""
        return EngineConfig(model=self.model, dtype=self.dtype, device=self.device, num_threads=self.num_threads, **settings)
