"""What the routes share: the engine's client, its limits, the tokenizer, the metrics and the settings."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from radixserve.config import ServerConfig
from radixserve.errors import EngineDeadError, InvalidRequestError
from radixserve.ipc import EngineInfo, GenerateRequest
from radixserve.observe.metrics import Metrics
from radixserve.server.backend import Backend
from radixserve.server.cache.feed import CacheFeed
from radixserve.server.cache.view import CacheView
from radixserve.server.errors import HttpError
from radixserve.server.generation import Generation, ReplyBuilder
from radixserve.server.http.intake import Intake
from radixserve.server.middleware.gate import Gate
from radixserve.server.middleware.request_log import RequestRecord, record_of
from radixserve.server.middleware.tracing import Tracer
from radixserve.server.responses.store import ResponseStore
from radixserve.text.answer_check import AnswerCheck
from radixserve.text.dialect import Dialect
from radixserve.text.tokenizer import Tokenizer

T = TypeVar("T")


class Served(NamedTuple):
    """What answers a request: its name in the API, and the adapter, if it is one."""

    name: str
    adapter: str | None = None


@dataclass
class Service:
    """One served model with its adapters. `started`: Unix time in seconds."""

    client: Backend
    info: EngineInfo
    tokenizer: Tokenizer
    config: ServerConfig
    metrics: Metrics
    gate: Gate
    tracer: Tracer | None = None
    intake: Intake = field(default_factory=Intake)
    started: int = field(default_factory=lambda: int(time.time()))
    view: CacheView = field(init=False)
    _feeds: dict[str, CacheFeed] = field(default_factory=dict)
    longest_token: int = field(init=False)
    """In bytes."""
    dialect: Dialect = field(init=False)
    responses: ResponseStore = field(init=False)

    adapters: dict[str, str] = field(init=False)
    """Directories of the loaded ones, by name, in the order of their loads."""

    def __post_init__(self) -> None:
        self.adapters = dict(self.info.adapters)
        self.view = CacheView(self.tokenizer, redacted=self.config.ui_redact)
        self.dialect = Dialect.of(self.tokenizer, self.config.tool_parser, self.config.reasoning_parser)
        self.responses = ResponseStore(self.config.response_store_bytes)
        self.longest_token = max(len(self.tokenizer.token_bytes[i]) for i in range(self.tokenizer.vocab_size))

    @property
    def model_name(self) -> str:
        """The model's name in the API."""
        return self.config.served_model_name or self.info.model

    def now(self) -> int:
        """Unix time in seconds, for the `created` of a reply."""
        return int(time.time())

    def find_model(self, name: str | None) -> Served:
        """What a client asks for. Raises HttpError 404, listing what there is, for what is not served."""
        if name is None or name in (self.model_name, self.info.model):
            return Served(self.model_name)
        if name in self.adapters:
            return Served(name, name)
        known = ", ".join(map(repr, (self.model_name, *self.adapters)))
        raise HttpError(404, f"the model {name[:100]!r} is not served here: ask for {known}", code="model_not_found")

    def generate(
        self,
        record: RequestRecord,
        reply: ReplyBuilder,
        requests: list[GenerateRequest],
        *,
        stream: bool,
        checks: Sequence[AnswerCheck | None] = (),
    ) -> Generation:
        """The response to an HTTP request, which asks the engine. `requests`: one a prompt; `checks`: of the answers, by prompt."""
        return Generation(self.client, self.metrics, record, reply, requests, stream, checks)

    def feed(self, replica: str | None = None) -> CacheFeed:
        """What tells viewers of the cache of a replica, by default the first. Raises HttpError 404 for a name that is unknown."""
        replicas = self.client.replicas
        name = next(iter(replicas), None) if replica is None else replica
        if name is None:
            raise EngineDeadError(str(self.client.failure))
        if name not in replicas:
            known = f"there are {', '.join(replicas)}" if any(replicas) else "there is one engine: leave the parameter out"
            raise HttpError(404, f"the replica {name[:100]!r} is not known: {known}", code="unknown_replica")
        self._feeds = {known: feed for known, feed in self._feeds.items() if known in replicas}
        if name not in self._feeds:
            self._feeds[name] = CacheFeed(replicas[name], self.view, self.metrics, self.gate)
        return self._feeds[name]

    def check_adapter_name(self, name: str) -> None:
        """Raises InvalidRequestError for an adapter that is called like the base: nobody could ask for it."""
        if name in (self.model_name, self.info.model):
            raise InvalidRequestError(f"the adapter's name is {name!r}, which is the model's: choose another", param="lora_name")

    def check_text(self, num_chars: int, param: str) -> None:
        """Raises InvalidRequestError for a text so long that it can't fit whatever its tokens are, before it is tokenized."""
        least, limit = num_chars // self.longest_token, self.info.limits.max_context_len
        if least > limit:
            raise InvalidRequestError(
                f"this model's maximum context length is {limit} tokens: the prompt has {num_chars} characters, at least {least} "
                "tokens; shorten it",
                param=param,
                code="context_length_exceeded",
            )


def service_of(request: Request) -> Service:
    """The service of the app that a request came to."""
    return cast(Service, request.app.state.service)


async def offload(request: Request, work: Callable[[], T]) -> T:
    """The result of `work`, done on a thread for requests of this one's size, off the event loop."""
    return await service_of(request).intake.run(record_of(request).body_bytes, work)


def json_reply(body: msgspec.Struct | dict[str, object], status: int = 200) -> Response:
    """A reply with `body` as JSON."""
    return Response(msgspec.json.encode(body), status, media_type="application/json")
