"""/openapi.json: the OpenAPI document, from the routes and the structs that bodies are read into and replies written from."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

import radixserve
from radixserve.server.anthropic.body import CountBody, MessagesBody
from radixserve.server.cache import page as live_page
from radixserve.server.endpoints import CONTRACTS, EndpointSpec
from radixserve.server.openai.bodies import ChatBody, CompletionBody
from radixserve.server.responses.body import ResponsesBody
from radixserve.server.service import json_reply, service_of
from radixserve.server.sglang.protocol import GenerateBody, SamplingBody
from radixserve.server.unsupported_fields import not_honoured

Schemas = dict[int, dict[str, Any]]
"""By the id of the type."""

_PARAMETER = re.compile(r"{(\w+)(?::(\w+))?}")


async def openapi(request: Request) -> Response:
    """The endpoint."""
    return json_reply(document(request.app.routes, keyed=bool(service_of(request).config.api_key)))


def document(routes: Iterable[BaseRoute], *, keyed: bool) -> dict[str, Any]:
    """All endpoints but the files of the live page. `keyed`: whether an API key must be sent."""
    schemas, components = _schemas()
    paths: dict[str, Any] = {}
    for route in routes:
        if isinstance(route, Route) and route.path not in live_page.PATHS:
            path = _PARAMETER.sub(r"{\1}", route.path)
            for method in sorted((route.methods or set()) - {"HEAD"}):
                paths.setdefault(path, {})[method.lower()] = _operation(method, path, route.path, schemas)
    security = {"key": {"type": "http", "scheme": "bearer"}, "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "RadixServe", "version": radixserve.__version__},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": security},
        "security": [{name: []} for name in security] if keyed else [],
    }


def _schemas() -> tuple[Schemas, dict[str, Any]]:
    """The schema of each type that a contract names, and the components that they refer to."""
    used = [kind for this in CONTRACTS.values() for kind in (this.body, this.reply, this.event, this.error) if kind is not None]
    types = list({id(kind): kind for kind in used}.values())
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    for body in (ChatBody, CompletionBody, CountBody, MessagesBody, GenerateBody, SamplingBody, ResponsesBody):
        for name in not_honoured(body):
            del components[body.__name__]["properties"][name]
    return dict(zip(map(id, types), schemas, strict=True)), components


def _operation(method: str, path: str, given_path: str, schemas: Schemas) -> dict[str, Any]:
    contract = CONTRACTS[method, path]
    operation: dict[str, Any] = {
        "summary": contract.summary,
        "operationId": f"{method.lower()}{re.sub(r'[^a-z]+', '_', path)}",
        "parameters": _parameters(given_path, contract),
        "responses": {
            "200": {"description": contract.summary, "content": _content(contract, schemas)},
            "default": {"description": "An error", "content": {"application/json": {"schema": schemas[id(contract.error)]}}},
        },
    }
    if contract.body is not None:
        media = "text/plain" if contract.body is str else "application/json"
        operation["requestBody"] = {"required": True, "content": {media: {"schema": schemas[id(contract.body)]}}}
    return operation


def _parameters(path: str, contract: EndpointSpec) -> list[dict[str, Any]]:
    found = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "integer" if kind == "int" else "string"}}
        for name, kind in _PARAMETER.findall(path)
    ]
    return found + [
        {"name": name, "in": "query", "required": required, "schema": {"type": "string"}}
        for name, required in contract.query.items()
    ]


def _content(contract: EndpointSpec, schemas: Schemas) -> dict[str, Any]:
    if contract.reply is None:
        return {contract.media: {"schema": {"type": "string"}}}
    content: dict[str, Any] = {"application/json": {"schema": schemas[id(contract.reply)]}}
    if contract.event is not None:
        frames = {"type": "string", "description": "With `stream`: server-sent events, whose data is x-event-data."}
        content["text/event-stream"] = {"schema": frames, "x-event-data": schemas[id(contract.event)]}
    return content
