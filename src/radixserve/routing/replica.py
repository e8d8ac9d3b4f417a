"""One replica as the router knows it: what it holds, and what it has to do."""

from dataclasses import dataclass, field

from radixserve.routing.held import HeldPages
from radixserve.routing.prompt import Prompt


@dataclass(slots=True, eq=False)
class Replica:
    """`queue_tokens` and `num_requests` are those of requests that are there now; without any, both are 0."""

    name: str
    num_slots: int
    """Size of its pool, in tokens."""
    recent_tokens: float
    """Tokens that it was given to compute, of late; see `Router`."""
    held: HeldPages = field(default_factory=HeldPages)
    queue_tokens: int = 0
    num_requests: int = 0
    draining: bool = False

    def num_missing(self, prompt: Prompt) -> int:
        """Tokens that it would have to compute."""
        return prompt.num_missing(self.held.num_held(prompt.pages))
