"""Routes for those who run the server: health, models, information, metrics, the cache, the tokenizer."""

import asyncio
from contextlib import aclosing

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

import radixserve
from radixserve.errors import InvalidRequestError
from radixserve.ipc import GenerateRequest
from radixserve.sampling_params import SamplingParams
from radixserve.server.admin.bodies import DetokenizeBody, TokenizeBody
from radixserve.server.http.body import read_body
from radixserve.server.openai.replies import Model, ModelList, Tokens
from radixserve.server.prompts import as_token_ids
from radixserve.server.service import Served, Service, json_reply, offload, service_of
from radixserve.server.tool_fields import read_tools
from radixserve.tokens import token_bytes

HEALTH_TIMEOUT_S = 20
PROBE_PRIORITY = 2**31
"""A probe waits for a step, not for the queue."""


async def health(request: Request) -> Response:
    """200 while the engine lives, however busy; 503 when it is dead, answers nothing for long, or the server is shutting down."""
    service = service_of(request)
    if (failure := service.client.failure) is not None:
        return json_reply({"status": "dead", "reason": str(failure)}, 503)
    if service.gate.closed:
        return json_reply({"status": "shutting down"}, 503)
    return json_reply({"status": "ok"})


async def health_generate(request: Request) -> Response:
    """Like /health, but sends one token through the engine; 503 when that takes longer than HEALTH_TIMEOUT_S, too."""
    service = service_of(request)
    params = SamplingParams(max_tokens=1, temperature=0.0)
    probe = GenerateRequest("", token_bytes([0]), params, priority=PROBE_PRIORITY)
    try:
        async with asyncio.timeout(HEALTH_TIMEOUT_S), aclosing(service.client.generate([probe])) as events:
            async for _ in events:
                pass
    except TimeoutError:
        return json_reply({"status": f"no token within {HEALTH_TIMEOUT_S} s"}, 503)
    return json_reply({"status": "ok"})


async def models(request: Request) -> Response:
    """The served model and its adapters."""
    service = service_of(request)
    served = [Served(service.model_name), *(Served(name, name) for name in service.adapters)]
    return json_reply(ModelList([_model(service, one) for one in served]))


async def model(request: Request) -> Response:
    """The served model or an adapter, asked for by name; 404 for another."""
    service = service_of(request)
    return json_reply(_model(service, service.find_model(request.path_params["name"])))


async def server_info(request: Request) -> Response:
    """What the engine is, its settings and its figures as of now; `stats_age_s` is above 0 where it was too busy to tell them."""
    service = service_of(request)
    age_s = await service.client.refresh()
    info, stats = msgspec.structs.asdict(service.info), msgspec.structs.asdict(service.client.stats)
    sglang = _model_info(service) | {"max_total_num_tokens": service.info.limits.num_slots}
    replicas = {name: {"stats": msgspec.structs.asdict(one.stats)} for name, one in service.client.replicas.items() if name}
    shown = {"replicas": replicas} if replicas else {}
    figures = {"stats": stats, "stats_age_s": round(age_s, 3), **shown}
    return json_reply({"version": radixserve.__version__, **sglang, **info, "adapters": service.adapters, **figures})


async def model_info(request: Request) -> Response:
    """The model's name, as SGLang's clients ask for it."""
    return json_reply(_model_info(service_of(request)))


async def version(request: Request) -> Response:
    """The version of the server."""
    return json_reply({"version": radixserve.__version__})


async def metrics(request: Request) -> Response:
    """Metrics in Prometheus' text format, the engine's as of now."""
    service = service_of(request)
    service.metrics.stats_age.set(await service.client.refresh())
    return Response(service.metrics.render(), media_type="text/plain; version=1.0.0; charset=utf-8")


async def flush_cache(request: Request) -> Response:
    """Empties the tree; 409 while requests wait or run. With ?mode=unused it evicts what nobody uses, whoever waits or runs."""
    mode = request.query_params.get("mode", "all")
    if mode not in ("all", "unused"):
        raise InvalidRequestError(f"mode is {mode[:50]!r}: must be all or unused", param="mode")
    return json_reply({"message": await service_of(request).client.flush(unused=mode == "unused")})


async def embeddings(request: Request) -> Response:
    """400: no model that is served here makes any."""
    name = service_of(request).model_name
    raise InvalidRequestError(
        f"the model {name!r} generates text and has no embeddings: serve them with another server", param="model"
    )


async def tokenize(request: Request) -> Response:
    """Token ids of a text, or of a conversation after the chat template."""
    body = await read_body(request, TokenizeBody)
    return await offload(request, lambda: _tokenize(body, service_of(request)))


def _tokenize(body: TokenizeBody, service: Service) -> Response:
    if (body.prompt is None) == (body.messages is None):
        raise InvalidRequestError("send either prompt or messages, not both and not neither", param="prompt")
    if body.messages is not None:
        ids = service.tokenizer.encode_chat(
            body.messages,
            tools=[tool.openai() for tool in read_tools(body.tools or [])],
            add_generation_prompt=body.add_generation_prompt,
            continue_final_message=body.continue_final_message,
            template_kwargs=body.chat_template_kwargs,
            check=lambda num_chars: service.check_text(num_chars, "messages"),
        )
    else:
        text = body.prompt or ""
        service.check_text(len(text), "prompt")
        ids = service.tokenizer.encode(text, add_special_tokens=body.add_special_tokens)
    texts = service.tokenizer.vocabulary_texts(ids) if body.return_token_strs else UNSET
    return json_reply(Tokens(ids.tolist(), len(ids), service.info.limits.max_context_len, texts))


async def detokenize(request: Request) -> Response:
    """The text of token ids."""
    body = await read_body(request, DetokenizeBody)
    return await offload(request, lambda: _detokenize(body, service_of(request)))


def _detokenize(body: DetokenizeBody, service: Service) -> Response:
    ids = as_token_ids(body.tokens, service.info.limits.vocab_size, "tokens").tolist()
    return json_reply({"prompt": service.tokenizer.decode(ids, skip_special_tokens=body.skip_special_tokens)})


async def tokenizer_info(request: Request) -> Response:
    """Special tokens and the chat template, as clients ask for them that tokenize through the server."""
    tokenizer = service_of(request).tokenizer
    bos, eos = (
        None if token_id is None else tokenizer.token_bytes[token_id].decode(errors="replace")
        for token_id in (tokenizer.bos_id, min(tokenizer.eos_ids, default=None))
    )
    template = tokenizer.chat_template
    return json_reply({"bos_token": bos, "eos_token": eos, "chat_template": template.source if template else None})


def _model_info(service: Service) -> dict[str, object]:
    model = service.info.model
    return {"model_path": model, "tokenizer_path": model, "served_model_name": service.model_name, "is_generation": True}


def _model(service: Service, served: Served) -> Model:
    base = UNSET if served.adapter is None else service.model_name
    return Model(id=served.name, created=service.started, max_model_len=service.info.limits.max_context_len, parent=base)
