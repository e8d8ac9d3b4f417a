"""`--record`: what an engine took in, step by step, in JSON lines, so that a simulation can do the same again.

The first line is a RecordingHeader, every other a RecordedStep. Token ids are salted: each is replaced by its place in the order
of the vocabulary's keyed hashes, under a random key of the file that is kept nowhere. So equal prefixes stay equal, and neither
texts nor token ids show; namespaces and request ids are hashed with the same key. It is a substitution cipher all the same: whoever
knows what was asked often, or the text of one request, can tell from counts and lengths where it is asked again. Treat a recording
as confidential, and not as anonymous.

Lines are written in large pieces, every second, and whenever the engine runs out of work, so that a kill loses a tail at most.
"""

import logging
import secrets
import time
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from radixserve.batch import ForwardBatch
from radixserve.cache.prefix_cache import PrefixCache
from radixserve.errors import ConfigError
from radixserve.ipc import (
    AbortRequest,
    CacheCommand,
    EngineInfo,
    EngineInput,
    EngineOutput,
    ExplainRequest,
    FlushRequest,
    GenerateRequest,
    GrammarFinished,
    LoadAdapter,
    ReportPages,
    RequestFailed,
    TopRequest,
    UnloadAdapter,
    UpdateWeightsRequest,
    WatchRequest,
    WeightsRead,
)
from radixserve.limits import Limits
from radixserve.req import Req
from radixserve.sampling_params import Grammar, SamplingParams
from radixserve.scheduler.digest import Digest
from radixserve.tokens import as_ids, token_bytes

logger = logging.getLogger(__name__)

FORMAT = 1
"""Raised when an older reader would misread a file."""
WRITE_BYTES = 1 << 16
"""Lines are kept until there are so many bytes of them,"""
WRITE_S = 1.0
"""or the first of them is so old."""


class RecordingHeader(msgspec.Struct, frozen=True):
    """What ran. `settings`: those of EngineConfig; `salted`: whether token ids are not the real ones."""

    format: int
    version: str
    model: str
    dtype: str
    limits: Limits
    settings: dict[str, Any]
    salted: bool


class RecordedStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step. Times count from the start of the recording and decide nothing."""

    ended_s: float
    messages: list[EngineInput] = []
    """Applied at its start, in order; those refused at once are left out."""
    applied_s: float = 0.0
    """When that was, if there are any."""
    tokens: list[tuple[int, int]] = []
    """(arrival number of the request, token id) of each sampled token; -1 where nothing could be sampled."""
    forced: list[tuple[int, list[int]]] = []
    """(arrival number, token ids) of the tokens that a grammar forced after the sampled one."""
    stopped: list[int] = []
    """Arrival numbers of the requests that the last of these tokens ended before their `max_tokens`."""
    digest: str = ""
    """`scheduler.digest` after it; empty when nothing was computed."""


class Salt:
    """Hides what a message says and keeps what is equal: one key, for one file."""

    def __init__(self, vocab_size: int, *, real_tokens: bool) -> None:
        """`real_tokens`: leave token ids as they are."""
        self._key = secrets.token_bytes(32)
        ids: list[int] = list(range(vocab_size))
        if not real_tokens:
            ids.sort(key=lambda token_id: blake2b(token_id.to_bytes(4, "little"), key=self._key).digest())
        self._salted = np.empty(vocab_size, dtype=np.int32)
        self._salted[ids] = np.arange(vocab_size, dtype=np.int32)

    def token(self, token_id: int) -> int:
        """A sampled token salted."""
        return int(self._salted[token_id])

    def message(self, message: EngineInput) -> EngineInput | None:
        """The same without anything that is text or tells whose it is; None for a message that decides nothing."""
        match message:
            case GenerateRequest():
                return msgspec.structs.replace(
                    message,
                    rid=self._name(message.rid),
                    prompt_ids=self._tokens(message.prompt_ids),
                    params=self._params(message.params),
                    cache_salt=message.cache_salt and self._name(message.cache_salt),
                    adapter=message.adapter and self._name(message.adapter),
                    request_id="",
                )
            case CacheCommand():
                return msgspec.structs.replace(
                    message,
                    rid=self._name(message.rid),
                    prompt_ids=self._tokens(message.prompt_ids),
                    cache_salt=message.cache_salt and self._name(message.cache_salt),
                    adapter=message.adapter and self._name(message.adapter),
                )
            case GrammarFinished():
                return GrammarFinished(self._grammar(message.grammar), message.error and "refused")
            case LoadAdapter():
                return msgspec.structs.replace(
                    message, rid=self._name(message.rid), name=self._name(message.name), directory=self._name(message.directory)
                )
            case UnloadAdapter():
                return UnloadAdapter(self._name(message.rid), self._name(message.name))
            case AbortRequest() | FlushRequest() | UpdateWeightsRequest():
                return msgspec.structs.replace(message, rid=self._name(message.rid))
            case WeightsRead():
                return UpdateWeightsRequest(self._name(message.rid), message.model)
            case WatchRequest() | ReportPages() | ExplainRequest() | TopRequest():
                return None

    def _tokens(self, token_ids: bytes) -> bytes:
        return token_bytes(self._salted[as_ids(token_ids)])

    def _params(self, params: SamplingParams) -> SamplingParams:
        grammar = None if params.grammar is None else self._grammar(params.grammar)
        return msgspec.structs.replace(params, stop=(), stop_token_ids=(), logit_bias={}, seed=None, grammar=grammar)

    def _grammar(self, grammar: Grammar) -> Grammar:
        return Grammar(grammar.kind, self._name(grammar.source))

    def _name(self, text: str) -> str:
        return blake2b(text.encode(), key=self._key, digest_size=8).hexdigest()


class Recorder:
    """Writes the recording of one engine."""

    def __init__(self, path: Path, info: EngineInfo, *, real_tokens: bool = False) -> None:
        """Starts a new file. Raises ConfigError where it can't be written, or is there already."""
        try:
            path.open("xb").close()
        except OSError as error:
            reason = "is there already: name another file" if isinstance(error, FileExistsError) else f"can't be written: {error}"
            raise ConfigError(f"--record {path} {reason}") from error
        self._path = path
        self._ended = False
        self._salt = Salt(info.limits.vocab_size, real_tokens=real_tokens)
        self._digest = Digest()
        self._encoder = msgspec.json.Encoder()
        self._lines = bytearray()
        self._zero_s = self._written_s = time.monotonic()
        self._messages: list[EngineInput] = []
        self._applied_s = 0.0
        header = RecordingHeader(
            FORMAT, version("radixserve"), info.model, info.dtype, info.limits, dict(info.settings), not real_tokens
        )
        self._write(header)
        self.flush()

    def take(self, message: EngineInput, answers: list[EngineOutput]) -> None:
        """Notes a message that was applied, with what it was answered at once."""
        refused = any(isinstance(answer, RequestFailed) for answer in answers) and not isinstance(message, GrammarFinished)
        begun = isinstance(message, UpdateWeightsRequest) and not answers  # to read: the weights are updated in a later step
        salted = None if refused or begun else self._salt.message(message)
        if salted is not None:
            if not self._messages:
                self._applied_s = self._now_s()
            self._messages.append(salted)

    def end_step(self, batch: ForwardBatch | None, token_ids: list[int], cache: PrefixCache, *, tidies: bool, idle: bool) -> None:
        """Writes the step. `token_ids`: of `batch.sampled`; `tidies`: it freed slots of a flush; `idle`: nothing is left to do."""
        if batch is not None or self._messages or tidies:
            sampled = [] if batch is None else batch.sampled
            self._write(
                RecordedStep(
                    self._now_s(),
                    self._messages,
                    self._applied_s,
                    [(req.arrival, self._token(req, token_id)) for req, token_id in zip(sampled, token_ids, strict=True)],
                    [] if batch is None else self._forced(batch),
                    [req.arrival for req in sampled if req.finish_reason == "stop"],
                    self._digest.add(batch, cache) if batch is not None else "",
                )
            )
            self._messages, self._applied_s = [], 0.0
        if idle or len(self._lines) > WRITE_BYTES or time.monotonic() > self._written_s + WRITE_S:
            self.flush()

    def flush(self) -> None:
        """Hands everything to the operating system. A disk that takes no more ends the recording, not the engine."""
        if self._lines and not self._ended:
            self._append()
        self._lines.clear()
        self._written_s = time.monotonic()

    def _now_s(self) -> float:
        return round(time.monotonic() - self._zero_s, 6)

    def _append(self) -> None:
        try:
            with self._path.open("ab") as file:
                file.write(self._lines)
        except OSError as error:
            self._ended = True
            logger.error("the recording %s ends here: %s", self._path, error)

    def _forced(self, batch: ForwardBatch) -> list[tuple[int, list[int]]]:
        """What came to the outputs of sampled requests beyond one token: each knew `seq_lens` tokens before."""
        forced, sampled = [], set(batch.sampled)
        for req, seq_len in zip(batch.reqs, batch.seq_lens, strict=True):
            if req.matcher is not None and req in sampled and (run := req.output_ids[seq_len - req.prompt_len + 1 :]):
                forced.append((req.arrival, [self._salt.token(token_id) for token_id in run]))
        return forced

    def _token(self, req: Req, token_id: int) -> int:
        return self._salt.token(token_id) if req.finish_reason != "error" else -1

    def _write(self, line: RecordingHeader | RecordedStep) -> None:
        self._lines += self._encoder.encode(line) + b"\n"
