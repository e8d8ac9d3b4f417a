"""Routes that act on the engine: end requests, load other weights, load and unload adapters."""

from starlette.requests import Request
from starlette.responses import Response

from radixserve.errors import InvalidRequestError
from radixserve.server.admin.bodies import AbortBody, LoadAdapterBody, UnloadAdapterBody, WeightsBody
from radixserve.server.anthropic import routes as messages
from radixserve.server.http.body import read_body
from radixserve.server.openai import chat, completions
from radixserve.server.service import json_reply, service_of

REPLY_PREFIXES = (chat.ID_PREFIX, completions.ID_PREFIX, messages.ID_PREFIX)


async def update_weights(request: Request) -> Response:
    """Loads other weights of the same shape and empties the tree; 409 while requests wait or run."""
    service = service_of(request)
    body = await read_body(request, WeightsBody)
    return json_reply({"success": True, "message": await service.client.update_weights(body.model)})


async def load_adapter(request: Request) -> Response:
    """Loads an adapter, which is then a model of its own name."""
    service = service_of(request)
    body = await read_body(request, LoadAdapterBody)
    service.check_adapter_name(body.lora_name)
    message = await service.client.load_adapter(body.lora_name, body.lora_path, replace=body.load_inplace)
    service.adapters.pop(body.lora_name, None)
    service.adapters[body.lora_name] = body.lora_path
    return json_reply({"message": message})


async def unload_adapter(request: Request) -> Response:
    """Forgets an adapter and what was cached under it; open requests end with it."""
    service = service_of(request)
    body = await read_body(request, UnloadAdapterBody)
    message = await service.client.unload_adapter(body.lora_name)
    service.adapters.pop(body.lora_name, None)
    return json_reply({"message": message})


async def abort_request(request: Request) -> Response:
    """Ends requests by id, or all of them: each answers what it has, with the finish reason "abort"."""
    service = service_of(request)
    body = await read_body(request, AbortBody)
    if not body.rid and not body.abort_all:
        raise InvalidRequestError("rid is missing: name a request, or set abort_all to true", param="rid")
    ids = None if body.abort_all else {body.rid, *(body.rid.removeprefix(prefix) for prefix in REPLY_PREFIXES)}
    return json_reply({"aborted": await service.client.abort(ids)})
