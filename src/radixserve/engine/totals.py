"""What an engine has done since it started."""

from dataclasses import dataclass, field

from radixserve.ipc import FinishReason
from radixserve.req import Req


@dataclass
class EngineTotals:
    """Running totals, named as in EngineStats. A request counts when it ends, once, whatever happened to it on the way."""

    num_steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    computed_tokens: int = 0
    generated_tokens: int = 0
    forced_tokens: int = 0
    finished: dict[str, int] = field(default_factory=dict)

    def count(self, req: Req, reason: FinishReason) -> None:
        """Adds a request that ended. One that was never admitted has no say in the hit rate."""
        if req.cached_len is not None:
            self.prompt_tokens += req.prompt_len
            self.cached_tokens += req.cached_len
        self.finished[reason] = self.finished.get(reason, 0) + 1
