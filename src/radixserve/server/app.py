"""The HTTP server: its routes, and `serve`, which runs it with its engine until someone ends it."""

import contextlib
import logging
import resource
import socket
import sys
from collections.abc import Callable

import uvloop
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Route

from radixserve.config import EngineConfig, ServerConfig, check_at_least
from radixserve.errors import ConfigError, EngineDeadError
from radixserve.models.registry import resolve
from radixserve.process.client import EngineClient
from radixserve.server.admin import control
from radixserve.server.admin import routes as admin
from radixserve.server.anthropic.errors import message_error
from radixserve.server.anthropic.routes import count_tokens, messages
from radixserve.server.backend import Backend
from radixserve.server.cache import page as live_page
from radixserve.server.cache import routes as cache_routes
from radixserve.server.errors import EXCEPTION_HANDLERS
from radixserve.server.lifecycle import Lifecycle
from radixserve.server.middleware.auth import ApiKeyMiddleware
from radixserve.server.middleware.browser_guard import BrowserGuardMiddleware, is_loopback
from radixserve.server.middleware.gate import GateMiddleware
from radixserve.server.middleware.request_log import RequestLogMiddleware
from radixserve.server.openai.chat import chat_completions
from radixserve.server.openai.completions import completions
from radixserve.server.openapi import openapi
from radixserve.server.responses.routes import create_response, delete_response, get_response
from radixserve.server.service import Service
from radixserve.server.sglang.generate import generate
from radixserve.text.dialect import Dialect
from radixserve.text.tokenizer import Tokenizer

BACKLOG = 2048

OTHER_FILES = 512
"""Open files that are no connections of clients, amply."""

logger = logging.getLogger(__name__)

ROUTES: list[BaseRoute] = [
    Route("/v1/completions", completions, methods=["POST"]),
    Route("/v1/chat/completions", chat_completions, methods=["POST"]),
    Route("/v1/responses", create_response, methods=["POST"]),
    Route("/v1/responses/{name}", get_response),
    Route("/v1/responses/{name}", delete_response, methods=["DELETE"]),
    Route("/v1/messages", messages, methods=["POST"]),
    Route("/v1/messages/count_tokens", count_tokens, methods=["POST"]),
    Route("/generate", generate, methods=["POST"]),
    Route("/abort_request", control.abort_request, methods=["POST"]),
    Route("/v1/embeddings", admin.embeddings, methods=["POST"]),
    Route("/v1/models", admin.models),
    Route("/v1/models/{name:path}", admin.model),
    Route("/health", admin.health),
    Route("/health_generate", admin.health_generate),
    Route("/metrics", admin.metrics),
    Route("/server_info", admin.server_info),
    Route("/get_model_info", admin.model_info),
    Route("/version", admin.version),
    Route("/flush_cache", admin.flush_cache, methods=["POST"]),
    Route("/update_weights", control.update_weights, methods=["POST"]),
    Route("/v1/load_lora_adapter", control.load_adapter, methods=["POST"]),
    Route("/v1/unload_lora_adapter", control.unload_adapter, methods=["POST"]),
    *cache_routes.ROUTES,
    *live_page.ROUTES,
    Route("/tokenize", admin.tokenize, methods=["POST"]),
    Route("/detokenize", admin.detokenize, methods=["POST"]),
    Route("/tokenizer_info", admin.tokenizer_info),
    Route("/openapi.json", openapi),
]

ERROR_FORMS = {"/v1/messages": message_error}
"""Of APIs whose errors have a form of their own, by how their paths begin."""


def serve(engine: EngineConfig, server: ServerConfig, make_backend: Callable[[], Backend] = EngineClient) -> int:
    """Serves until SIGTERM, SIGINT or the engine's death; returns the process's exit code. `make_backend`: what answers.

    The port is taken before the model loads. A setting that can't be honoured is one line on stderr and exit code 1.
    """
    logging.basicConfig(level=server.log_level.upper(), format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        check(server)
        with contextlib.closing(bind(server.host, server.port)) as listener:
            check_adapters(engine, server)
            warn_if_open(server)
            allow_files(server.max_connections)
            tokenizer = Tokenizer.load(resolve(engine.model))
            Dialect.of(tokenizer, server.tool_parser, server.reasoning_parser)  # what is wrong shows before the weights load
            return uvloop.run(Lifecycle(make_backend(), engine, server, tokenizer, listener).run(make_app))
    except (ConfigError, EngineDeadError) as error:
        print(f"radixserve: {error}", file=sys.stderr)
        return 1


def check(server: ServerConfig) -> None:
    """Raises ConfigError for a value that means nothing."""
    if server.api_key is not None and not server.api_key.strip():
        raise ConfigError("--api-key (or RADIXSERVE_API_KEY) is empty: give it a value, or leave it out for a server without a key")
    if not 0 <= server.port <= 65_535:
        raise ConfigError(f"--port is {server.port}: must be between 0 and 65535; 0 takes any that is free")
    if not server.grace_s >= 0:  # written so that NaN fails too
        raise ConfigError(f"--grace-s is {server.grace_s:g}: must be at least 0")
    for name in ("header_timeout_s", "body_timeout_s"):
        if not getattr(server, name) > 0:
            raise ConfigError(f"--{name.replace('_', '-')} is {getattr(server, name):g}: must be above 0")
    check_at_least("max_connections", server.max_connections, 1)
    check_at_least("response_store_bytes", server.response_store_bytes, 0)
    check_at_least("max_body_bytes", server.max_body_bytes, 1)
    check_at_least("max_open_requests", server.max_open_requests, 1)


def warn_if_open(server: ServerConfig) -> None:
    """One line in the log where strangers may connect."""
    if server.api_key is None and not is_loopback(server.host):
        logger.warning("the server listens on %s without --api-key: whoever can connect may use it", server.host)


def check_adapters(engine: EngineConfig, server: ServerConfig) -> None:
    """Raises ConfigError for an adapter that is called like the base: nobody could ask for it."""
    for text in engine.adapter:
        name = text.partition("=")[0]
        if name in (server.served_model_name, engine.model):
            raise ConfigError(f"--adapter names {name!r}, which is the model's name: choose another")


def allow_files(num_connections: int) -> None:
    """Raises this process's limit of open files, as far as it may, so that there can be so many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = num_connections + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def make_app(service: Service) -> Starlette:
    """The ASGI application."""
    middleware = [Middleware(RequestLogMiddleware, metrics=service.metrics, error_forms=ERROR_FORMS, tracer=service.tracer)]
    if service.config.api_key is not None:
        middleware.append(Middleware(ApiKeyMiddleware, api_key=service.config.api_key))
    else:
        names = (service.config.host, *service.config.allowed_host)
        middleware.append(Middleware(BrowserGuardMiddleware, names=names))
    middleware.append(Middleware(GateMiddleware, gate=service.gate))
    app = Starlette(routes=ROUTES, middleware=middleware, exception_handlers=EXCEPTION_HANDLERS)
    app.router.redirect_slashes = False
    app.state.service = service
    return app


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens: who connects before the model is loaded waits. Raises ConfigError when the address can't be had."""
    with contextlib.ExitStack() as unless_it_listens:
        try:
            family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
            listener = unless_it_listens.enter_context(socket.socket(family, kind))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError as error:
            raise ConfigError(f"can't listen on {host}:{port}: {error}; choose another --host or --port") from error
        unless_it_listens.pop_all()
    return listener
