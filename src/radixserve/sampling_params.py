"""How one request samples: the fields users set, and what is a valid value of each."""

import math
from collections.abc import Iterator
from typing import Literal

import msgspec

from radixserve.errors import InvalidRequestError, ParamError

MAX_N = 128
MAX_TOP_LOGPROBS = 20
MAX_STOP_STRINGS = 64
MIN_REPETITION_PENALTY = 0.01
"""Logits are divided by it: far below they are no numbers any more."""
MAX_STOP_LEN = 1024
"""In characters. Each of `n` choices carries its own."""
MAX_LOGIT_BIAS = 1024
MAX_GRAMMAR_BYTES = 256 * 1024
"""Of the source of a grammar in UTF-8: what reads it may not hold the interpreter for long."""
SEED_LIMIT = 2**63


class Grammar(msgspec.Struct, frozen=True):
    """A language that an answer must belong to. `source`: a JSON Schema, a regular expression, a grammar (GBNF, or Lark as
    llguidance reads it), a JSON list of texts to choose from, or a structural tag as JSON. Empty for `json_object`.
    """

    kind: Literal["json_object", "json_schema", "regex", "ebnf", "choice", "structural_tag"]
    source: str = ""

    def validate(self) -> None:
        """Raises InvalidRequestError (param "grammar") where the source is too large."""
        size = len(self.source.encode(errors="surrogatepass"))
        if size > MAX_GRAMMAR_BYTES:
            message = f"the {self.kind} has {size} bytes: at most {MAX_GRAMMAR_BYTES} are allowed; make it smaller"
            raise InvalidRequestError(message, param="grammar")


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sampling parameters of one request, named as in the OpenAI API and in vLLM.

    `temperature` 0 is greedy. `top_k` 0 and `top_p` 1 are off. `max_tokens` None means: until the model stops or the context or
    the pool is full; 0 computes the prompt, which stays in the cache, and answers nothing. `logprobs` is the number of alternatives
    reported at each position (0: the sampled token alone; None: off). `prompt_logprobs` is the same for the tokens of the prompt
    after position `logprob_start_len`: what is before it may come from the cache, all else is computed. `n` answers share one
    prefill; choice i samples with `seed + i`. What a seed draws depends on nothing else, batch mates included. A `stop` that is
    one text counts as a tuple of it. An answer that is whole by its `grammar` ends, whatever `min_tokens` and `ignore_eos` say;
    where it may also go on, they do what they always do.
    `skip_special_tokens` leaves special tokens out of the text of an answer.
    """

    n: int = 1
    max_tokens: int | None = 128
    min_tokens: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = {}
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprob_start_len: int = 0
    grammar: Grammar | None = None
    skip_special_tokens: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            msgspec.structs.force_setattr(self, "stop", (self.stop,))

    def choices(self, random_seed: int) -> Iterator["SamplingParams"]:
        """The parameters of each of the `n` choices, as requests of their own: choice i samples with seed + i.

        `random_seed` serves where no seed is set, so that the engine itself never draws one. The prompt is scored for the first
        alone, so that it is computed once.
        """
        first = self.seed if self.seed is not None else random_seed
        for i in range(self.n):
            wrapped = (first + i + SEED_LIMIT) % (2 * SEED_LIMIT) - SEED_LIMIT
            yield msgspec.structs.replace(self, n=1, seed=wrapped, prompt_logprobs=self.prompt_logprobs if i == 0 else None)

    def validate(self, vocab_size: int) -> None:
        """Raises InvalidRequestError naming field, value and limit for the first field that is out of range."""
        _check_int("n", self.n, 1, MAX_N)
        if self.max_tokens is not None:
            _check_int("max_tokens", self.max_tokens, 0, None)
        _check_int("min_tokens", self.min_tokens, 0, self.max_tokens)
        _check_float("temperature", self.temperature, 0.0, 100.0)
        _check_int("top_k", self.top_k, 0, None)
        _check_float("top_p", self.top_p, 0.0, 1.0, above=True)
        _check_float("min_p", self.min_p, 0.0, 1.0)
        _check_float("repetition_penalty", self.repetition_penalty, MIN_REPETITION_PENALTY, 100.0)
        _check_float("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _check_float("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _check_count("logit_bias", len(self.logit_bias), MAX_LOGIT_BIAS)
        for token_id, bias in self.logit_bias.items():
            _check_int("logit_bias", token_id, 0, vocab_size - 1)
            _check_float("logit_bias", bias, -100.0, 100.0)
        if self.seed is not None:
            _check_int("seed", self.seed, -SEED_LIMIT, SEED_LIMIT - 1)
        _check_count("stop", len(self.stop), MAX_STOP_STRINGS)
        if "" in self.stop:
            raise ParamError("stop", "holds an empty string: it would end every answer at once")
        if (longest := max(map(len, self.stop), default=0)) > MAX_STOP_LEN:
            raise ParamError("stop", f"holds {longest} characters: at most {MAX_STOP_LEN} are allowed")
        _check_count("stop_token_ids", len(self.stop_token_ids), MAX_STOP_STRINGS)
        for token_id in self.stop_token_ids:
            _check_int("stop_token_ids", token_id, 0, vocab_size - 1)
        for name, count in (("logprobs", self.logprobs), ("prompt_logprobs", self.prompt_logprobs)):
            if count is not None:
                _check_int(name, count, 0, MAX_TOP_LOGPROBS)
        _check_int("logprob_start_len", self.logprob_start_len, 0, None)
        if self.grammar is not None:
            self.grammar.validate()


def _check_int(name: str, value: int, low: int, high: int | None) -> None:
    if value < low or (high is not None and value > high):
        limit = f"at least {low}" if high is None else f"between {low} and {high}"
        raise ParamError(name, f"is {value}: must be {limit}")


def _check_float(name: str, value: float, low: float, high: float, *, above: bool = False) -> None:
    """`above`: the lower limit itself is not allowed."""
    if not math.isfinite(value) or value < low or value > high or (above and value == low):
        limit = f"above {low} and at most {high}" if above else f"between {low} and {high}"
        raise ParamError(name, f"is {value}: must be {limit}")


def _check_count(name: str, count: int, limit: int) -> None:
    if count > limit:
        raise ParamError(name, f"has {count} entries: at most {limit} are allowed")
