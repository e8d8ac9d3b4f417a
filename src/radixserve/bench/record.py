"""What was measured of one request."""

from dataclasses import dataclass

from radixserve.ipc import TokenLogprob


@dataclass(frozen=True, kw_only=True)
class Record:
    """Times in seconds on one clock that starts with the run. A failed request has an `error` and counts in no statistic."""

    session: int
    turn: int
    start_s: float
    end_s: float
    chunk_s: tuple[float, ...] = ()
    """When each piece of the answer arrived; the first is the first token's."""
    prompt_tokens: int = 0
    cached_tokens: int | None = None
    """None: the server does not say."""
    completion_tokens: int = 0
    text: str = ""
    finish_reason: str | None = None
    prompt_ids: bytes | None = None
    """int32; None where not known."""
    output_ids: bytes | None = None
    """int32; None where not known."""
    logprobs: tuple[TokenLogprob, ...] = ()
    error: str | None = None

    @property
    def ttft_s(self) -> float:
        """Time to first token. An answer without any text counts to its end."""
        return (self.chunk_s[0] if self.chunk_s else self.end_s) - self.start_s

    @property
    def gaps_s(self) -> list[float]:
        """Times between consecutive pieces of the answer."""
        return [after - before for before, after in zip(self.chunk_s, self.chunk_s[1:], strict=False)]

    @property
    def reused_share(self) -> float:
        """Share of the prompt that was reused."""
        return (self.cached_tokens or 0) / self.prompt_tokens if self.prompt_tokens else 0.0
