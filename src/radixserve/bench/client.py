"""An HTTP client that asks any OpenAI-compatible server and times what comes back.

Token ids and texts go to /v1/completions, messages to /v1/chat/completions, always streamed. Nothing is retried: what fails is
recorded.
"""

import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import httpx
import msgspec

from radixserve.bench.record import Record
from radixserve.bench.workloads import Messages, Prompt
from radixserve.errors import ConfigError
from radixserve.tokens import as_ids, token_bytes

TIMEOUT_S = 1800.0
"""Between two bytes of an answer: a request may wait long behind others."""


@dataclass(frozen=True, kw_only=True)
class RequestShape:
    """What all requests of a run have in common."""

    model: str
    temperature: float = 0.0
    ignore_eos: bool = True
    return_token_ids: bool = True
    """Ask for the ids of prompt and answer, as vLLM calls it. They cost a server and its client some time."""


@dataclass
class _Stream:
    """What a streamed answer has told so far."""

    chunk_s: list[float] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    prompt_ids: list[int] | None = None
    output_ids: list[int] | None = None

    def take(self, chunk: dict[str, Any], now_s: float) -> None:
        """Notes one chunk. Raises ServerError for an error frame."""
        if "error" in chunk:
            raise ServerError(f"error in the stream: {chunk['error']}")
        self.usage = chunk.get("usage") or self.usage
        self.prompt_ids = chunk.get("prompt_token_ids") or self.prompt_ids
        for choice in chunk.get("choices", ()):
            piece = choice.get("text") or (choice.get("delta") or {}).get("content") or ""
            token_ids = choice.get("token_ids")
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            self.prompt_ids = choice.get("prompt_token_ids") or self.prompt_ids
            if token_ids:
                self.output_ids = (self.output_ids or []) + token_ids
            if piece or token_ids:
                self.chunk_s.append(now_s)
                self.text.append(piece)


class ServerError(Exception):
    """The server answered with an error, or not to the end."""


class BenchClient:
    """One server under test. Use it as an async context manager."""

    def __init__(self, base_url: str, api_key: str | None = None, transport: httpx.AsyncBaseTransport | None = None) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._base_url = base_url.rstrip("/").removesuffix("/v1")
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._http = httpx.AsyncClient(
            base_url=self._base_url, headers=headers, timeout=TIMEOUT_S, limits=limits, transport=transport
        )
        self._zero_s = time.perf_counter()

    async def __aenter__(self) -> "BenchClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._http.aclose()

    def start_clock(self) -> None:
        """The run starts now: times in records count from here."""
        self._zero_s = time.perf_counter()

    def now_s(self) -> float:
        return time.perf_counter() - self._zero_s

    async def served_model(self) -> str:
        """Name of the first model that the server offers. Raises ConfigError when nobody answers."""
        reply = await self.request("GET", "/v1/models")
        models = reply.json().get("data") or []
        if not models:
            raise ConfigError(f"{self._base_url} serves no model")
        return str(models[0]["id"])

    async def flush_cache(self) -> None:
        """Empties the server's cache. Raises ConfigError when the server can't."""
        await self.request("POST", "/flush_cache", {})

    async def token_ids(self, model: str, content: str | Messages) -> bytes:
        """Tokenizes a text or a prompt of messages by the server's /tokenize, as int32. Raises ConfigError when it has none."""
        body: dict[str, Any] = {"model": model}
        body |= {"prompt": content, "add_special_tokens": False} if isinstance(content, str) else {"messages": content}
        return token_bytes((await self.request("POST", "/tokenize", body)).json()["tokens"])

    async def ask(self, prompt: Prompt, max_tokens: int, shape: RequestShape, session: int, turn: int) -> Record:
        """Sends one request and reads its stream to the end. A failure is in the record's `error`, never raised."""
        path, body = _request(prompt, max_tokens, shape)
        stream = _Stream()
        start_s = self.now_s()
        error = None
        try:
            async with self.stream(path, body) as reply:
                if reply.status_code != 200:
                    raise ServerError(f"{reply.status_code} {(await reply.aread())[:500].decode(errors='replace')}")
                await _read_stream(reply, stream, self.now_s)
        except (ServerError, httpx.HTTPError, msgspec.DecodeError) as failure:
            error = f"{type(failure).__name__}: {failure}"
        details = stream.usage.get("prompt_tokens_details") or {}
        sent_ids = prompt if isinstance(prompt, bytes) else None
        return Record(
            session=session,
            turn=turn,
            start_s=start_s,
            end_s=self.now_s(),
            chunk_s=tuple(stream.chunk_s),
            prompt_tokens=stream.usage.get("prompt_tokens", 0),
            cached_tokens=details.get("cached_tokens"),
            completion_tokens=stream.usage.get("completion_tokens", 0),
            text="".join(stream.text),
            finish_reason=stream.finish_reason,
            prompt_ids=sent_ids if stream.prompt_ids is None else token_bytes(stream.prompt_ids),
            output_ids=None if stream.output_ids is None else token_bytes(stream.output_ids),
            error=error,
        )

    def stream(self, path: str, body: dict[str, Any]) -> AbstractAsyncContextManager[httpx.Response]:
        """POSTs `body` and gives the reply as it begins; what isn't read stays on its way. Leaving the context leaves the reply."""
        return self._http.stream("POST", path, json=body)

    async def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        """A whole reply. Raises ConfigError when nobody answers, or with another status than 200."""
        try:
            reply = await self._http.request(method, path, json=body)
        except httpx.HTTPError as failure:
            raise ConfigError(f"nobody answers at {self._base_url}: {failure}; start a server or set --base-url") from failure
        if reply.status_code != 200:
            raise ConfigError(f"{method} {path} at {self._base_url} gave {reply.status_code}: {reply.text[:200]}")
        return reply


def _request(prompt: Prompt, max_tokens: int, shape: RequestShape) -> tuple[str, dict[str, Any]]:
    """Path and body. Servers that don't know `return_token_ids` or `ignore_eos` ignore them."""
    body: dict[str, Any] = {
        "model": shape.model,
        "max_tokens": max_tokens,
        "temperature": shape.temperature,
        "ignore_eos": shape.ignore_eos,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if shape.return_token_ids:
        body["return_token_ids"] = True
    if isinstance(prompt, str):
        return "/v1/completions", body | {"prompt": prompt}
    if isinstance(prompt, bytes):
        return "/v1/completions", body | {"prompt": as_ids(prompt).tolist()}
    return "/v1/chat/completions", body | {"messages": list(prompt)}


async def _read_stream(reply: httpx.Response, stream: _Stream, now_s: Callable[[], float]) -> None:
    """Reads server-sent events up to [DONE]. Raises ServerError when the stream ends before the answer does."""
    async for line in reply.aiter_lines():
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            break
        stream.take(msgspec.json.decode(data), now_s())
    if stream.finish_reason is None:
        raise ServerError("the stream ended without a finish_reason")
