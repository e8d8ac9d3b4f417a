"""What crosses between the HTTP process and the engine process.

Plain msgspec structs, encoded as msgpack. The engine's inputs (`EngineInput`) are applied in order, at the start of a step, and
nothing else decides what it does. Its outputs (`EngineOutput`) come back in order too.
"""

from typing import Literal

import msgspec

from radixserve.cache_report import CacheReport, CacheTop
from radixserve.errors import BusyError, InvalidRequestError, ParamError, RadixServeError
from radixserve.explanation import Explanation
from radixserve.limits import Limits
from radixserve.sampling_defaults import SamplingDefaults
from radixserve.sampling_params import Grammar, SamplingParams

FinishReason = Literal["stop", "length", "abort", "error"]
ErrorKind = Literal["invalid_request", "busy", "internal"]


class GenerateRequest(msgspec.Struct, frozen=True, tag=True):
    """One answer to compute; a client expands `params.n` into that many. `prompt_ids`: native-endian int32, 4 bytes a token."""

    rid: str
    prompt_ids: bytes
    params: SamplingParams
    priority: int = 0
    """Higher is sooner."""
    cache_salt: str | None = None
    adapter: str | None = None
    """Name of a loaded adapter; None: the base."""
    request_id: str = ""
    """What the client calls it: several may be called the same. Explanations name it so."""
    explain_cache: bool = False
    """Explain in the last Output what was reused and why no more."""


class AbortRequest(msgspec.Struct, frozen=True, tag=True):
    """Stop a request and free what it holds; unknown ids are ignored (it may just have finished)."""

    rid: str


class FlushRequest(msgspec.Struct, frozen=True, tag=True):
    """Empty the tree. Answered by CommandResult; refused as busy while requests wait or run.

    `unused`: evict instead, over some steps, what no request and no pin holds now. Never refused.
    """

    rid: str
    unused: bool = False


class UpdateWeightsRequest(msgspec.Struct, frozen=True, tag=True):
    """Load other weights of the same shape from `model` and flush. Answered by CommandResult.

    Refused as busy while requests wait or run, at first and again once the weights are read, and while others are being read.
    """

    rid: str
    model: str


class WeightsRead(msgspec.Struct, frozen=True, tag=True):
    """The weights that an UpdateWeightsRequest asked for are read, from `path`, or (with an `error`) can't be.

    The engine's own thread sends it, in order with all others.
    """

    rid: str
    model: str
    path: str
    error: str | None = None


class LoadAdapter(msgspec.Struct, frozen=True, tag=True):
    """Load the adapter in a PEFT directory under a name. Answered by CommandResult; refused as invalid where it doesn't fit.

    `replace`: an adapter that has the name is unloaded for it.
    """

    rid: str
    name: str
    directory: str
    replace: bool = False


class UnloadAdapter(msgspec.Struct, frozen=True, tag=True):
    """Forget an adapter and what was cached under it; open requests end with it. Answered by CommandResult."""

    rid: str
    name: str


class GrammarFinished(msgspec.Struct, frozen=True, tag=True):
    """A grammar was compiled, or (with an `error`) can't be. The engine's own threads send it, in order with all others."""

    grammar: Grammar
    error: str | None = None


class CacheCommand(msgspec.Struct, frozen=True, tag=True):
    """What an operator does to the tree. Answered by CommandResult; refused as invalid for a node that is not there.

    `node` is a node's serial number; without one the act is about the longest cached prefix of `prompt_ids` (pin) or about all
    pins (unpin). `subtree`: pin every leaf at or below the node, not the node alone.
    """

    rid: str
    act: Literal["pin", "unpin", "evict"]
    node: int | None = None
    prompt_ids: bytes = b""
    subtree: bool = False
    cache_salt: str | None = None
    adapter: str | None = None


class WatchRequest(msgspec.Struct, frozen=True, tag=True):
    """From now on (`on`) tell what happens in the cache, or stop it. Answered by the CacheNews of a snapshot when `on`."""

    on: bool


class ReportPages(msgspec.Struct, frozen=True, tag=True):
    """From now on tell which pages come into the cache and go, for a router; the cache must still be empty."""


class TopRequest(msgspec.Struct, frozen=True, tag=True):
    """Ask for the `count` prefixes whose reuse saved most. Answered by TopPrefixes. Walks the whole tree."""

    rid: str
    count: int


class ExplainRequest(msgspec.Struct, frozen=True, tag=True):
    """Ask why a recent request reused what it reused. Answered by Explained."""

    rid: str
    request_id: str


EngineInput = (
    GenerateRequest
    | AbortRequest
    | FlushRequest
    | UpdateWeightsRequest
    | WeightsRead
    | LoadAdapter
    | UnloadAdapter
    | GrammarFinished
    | CacheCommand
    | WatchRequest
    | ReportPages
    | ExplainRequest
    | TopRequest
)


class Sync(msgspec.Struct, frozen=True, tag=True):
    """Ask for a sign that all sent before was applied.

    No input of the engine: its process answers with Synced, after a step.
    """

    rid: str


class TokenLogprob(msgspec.Struct, frozen=True):
    """Natural-log probabilities at one position: of the token there, and of the `top` likeliest as (token id, logprob)."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    rank: int = 0
    """1 for the likeliest token, 2 for the next."""


class Output(msgspec.Struct, frozen=True, tag=True):
    """News of one request: what was generated since the last Output. `text` never ends inside a character or a stop string."""

    rid: str
    text: str
    token_ids: tuple[int, ...]
    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens reused at first admission; the same in every Output of a request."""
    completion_tokens: int
    """Generated so far, stop tokens included."""
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    """The stop string or stop token id that ended it."""
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    """Of the prompt's tokens after position `logprob_start_len`; in the first Output alone."""
    explanation: Explanation | None = None
    """In the last one, where it was asked for."""
    admitted_s: float | None = None
    """In the last one, from an engine with an observer: when it was first admitted, by the machine's monotonic clock."""


class RequestFailed(msgspec.Struct, frozen=True, tag=True):
    """A request or command that ended without an answer."""

    rid: str
    kind: ErrorKind
    message: str
    param: str | None = None
    code: str | None = None
    problem: str | None = None
    """Of a ParamError, whose message ends with it."""

    @classmethod
    def of(cls, rid: str, error: RadixServeError) -> "RequestFailed":
        """An error as a message."""
        problem = error.problem if isinstance(error, ParamError) else None
        if isinstance(error, InvalidRequestError):
            return cls(rid, "invalid_request", error.message, error.param, error.code, problem)
        return cls(rid, "busy" if isinstance(error, BusyError) else "internal", str(error))

    def error(self) -> RadixServeError:
        """The error that the message stands for."""
        if self.problem is not None and self.param is not None:
            lead = self.message.removesuffix(f"{self.param} {self.problem}")
            return ParamError(self.param, self.problem, lead=lead, code=self.code)
        if self.kind == "invalid_request":
            return InvalidRequestError(self.message, param=self.param, code=self.code)
        return BusyError(self.message) if self.kind == "busy" else RadixServeError(self.message)


class CommandResult(msgspec.Struct, frozen=True, tag=True):
    """A command was carried out; `message` says what was done, `figures` its numbers."""

    rid: str
    message: str
    figures: dict[str, int] = {}


class CacheNews(msgspec.Struct, frozen=True, tag=True):
    """What happened in the cache since the last CacheNews, sent after a step while somebody watches; `observe/news.py` opens it."""

    sealed: bytes


class PageChange(msgspec.Struct, frozen=True, array_like=True):
    """Pages, named as in `routing/prompt.py`, that came into the cache or went; or everything went."""

    kind: Literal["stored", "removed", "flushed"]
    pages: list[int] = []


class PageNews(msgspec.Struct, frozen=True, tag=True):
    """What happened to the pages in one step, in order, after a ReportPages."""

    changes: list[PageChange]


class TopPrefixes(msgspec.Struct, frozen=True, tag=True):
    """The answer to TopRequest."""

    rid: str
    top: CacheTop


class Explained(msgspec.Struct, frozen=True, tag=True):
    """The answer to ExplainRequest: one explanation a prompt and choice; none where the request is unknown or forgotten."""

    rid: str
    explanations: list[Explanation]


class Synced(msgspec.Struct, frozen=True, tag=True):
    """The answer to Sync: what was sent before it was applied, and the EngineStats sent before this are those after that step."""

    rid: str


class RankInfo(msgspec.Struct, frozen=True, tag=True):
    """What one process of a split model has. `kv_bytes`: of its part of the pool."""

    rank: int
    pid: int
    device: str
    num_heads: int
    num_kv_heads: int
    kv_bytes: int


class EngineInfo(msgspec.Struct, frozen=True, tag=True):
    """What a started engine is; the first message it sends. `kv_bytes`: of the whole pool, all ranks together."""

    model: str
    dtype: str
    device: str
    limits: Limits
    kv_bytes: int
    num_threads: int
    settings: dict[str, str | int | float | bool | tuple[str, ...] | None] = {}
    adapters: dict[str, str] = {}
    """Directories of those that were loaded at start, by name."""
    kernels: str = "none"
    """What computes, and why it does where it isn't the fastest."""
    sampling_defaults: SamplingDefaults = SamplingDefaults()
    """Of requests that don't say how to sample."""
    ranks: tuple[RankInfo, ...] = ()
    """The processes of a split model; empty where there is one."""


class EngineStats(msgspec.Struct, frozen=True, tag=True):
    """Gauges and running totals of the engine. Sizes in tokens.

    Sent when they have changed: after a step at most ten times a second, before the engine sleeps, and before a Synced.
    """

    num_waiting: int = 0
    num_running: int = 0
    num_slots: int = 0
    free_slots: int = 0
    evictable_slots: int = 0
    protected_slots: int = 0
    request_slots: int = 0
    num_nodes: int = 0
    num_steps: int = 0
    prompt_tokens: int = 0
    """Of requests that were admitted and have ended, each counted once."""
    cached_tokens: int = 0
    """Of prompt_tokens, reused at first admission."""
    computed_tokens: int = 0
    """Positions the model ran, recomputation after preemption included."""
    generated_tokens: int = 0
    forced_tokens: int = 0
    """Of generated_tokens, appended because a grammar left no choice, without a step of the model each."""
    evicted_tokens: int = 0
    num_preemptions: int = 0
    finished: dict[str, int] = {}
    """Requests ended, by finish reason."""
    cache: CacheReport = CacheReport()
    """What an observer counted, where there is one."""


EngineOutput = (
    Output | RequestFailed | CommandResult | Explained | TopPrefixes | Synced | EngineInfo | EngineStats | CacheNews | PageNews
)
