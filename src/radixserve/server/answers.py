"""What has come of the choices of one HTTP request so far: their texts, and the count of their tokens."""

from dataclasses import dataclass, field
from functools import partial

from radixserve.ipc import FinishReason, Output, TokenLogprob
from radixserve.server.cache.explanations import CacheExplanation, with_text
from radixserve.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Usage:
    """Tokens of one HTTP request: each prompt counted once, the answers summed."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    """Of the prompts: their KV was in the cache when the request was first admitted."""
    explanations: list[CacheExplanation] = field(default_factory=list)
    """One a choice, where the request asked for them."""


@dataclass
class Answer:
    """One choice, put together from its news."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    """Of the prompt; the first of its choices alone has them."""
    cached_tokens: int = 0
    """Of the prompt, when this choice was first admitted."""
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None

    def add(self, output: Output) -> None:
        """Appends the next news."""
        self.text += output.text
        self.token_ids += output.token_ids
        self.logprobs += output.logprobs
        self.prompt_logprobs += output.prompt_logprobs
        self.cached_tokens = output.cached_tokens
        self.finish_reason = output.finish_reason
        self.stop_reason = output.stop_reason


class Tally:
    """Counts the tokens of all choices; choices number `n` a prompt. `prompt_lens`: tokens of each prompt."""

    def __init__(self, prompt_lens: list[int], n: int, tokenizer: Tokenizer) -> None:
        self._prompt_lens = prompt_lens
        self._n = n
        self._text = partial(tokenizer.decode, skip_special_tokens=False)
        self._last: dict[int, tuple[Output, float]] = {}

    def add(self, number: int, output: Output, now: float) -> None:
        """Takes news of a choice; `now` in seconds of the monotonic clock."""
        self._last[number] = (output, now)

    def last_time(self, number: int) -> float | None:
        """When a choice last had news."""
        last = self._last.get(number)
        return last[1] if last else None

    def usage(self) -> Usage:
        """Tokens as of now. A prompt's cached tokens are the least of its choices': what was there before its siblings came."""
        cached: dict[int, int] = {}
        completion_tokens = 0
        for number, (output, _) in self._last.items():
            prompt = number // self._n
            cached[prompt] = min(cached.get(prompt, output.cached_tokens), output.cached_tokens)
            completion_tokens += output.completion_tokens
        found = [output.explanation for _, (output, _) in sorted(self._last.items()) if output.explanation is not None]
        explanations = [with_text(explanation, self._text, branch_text=False) for explanation in found]
        return Usage(sum(self._prompt_lens), completion_tokens, sum(cached.values()), explanations)

    def finish_reasons(self) -> str:
        """The different finish reasons, in the order of the choices."""
        return ",".join(dict.fromkeys(str(self._last[number][0].finish_reason) for number in sorted(self._last)))
