"""/v1/responses: the next turn of a conversation, which may go on from a response that is kept here."""

import uuid

import msgspec
from starlette.requests import Request
from starlette.responses import Response as HttpResponse

from radixserve.errors import InvalidRequestError
from radixserve.sampling_params import SamplingParams
from radixserve.server.conversation import prepare
from radixserve.server.generation import Generation
from radixserve.server.http.body import read_body
from radixserve.server.middleware.request_log import RequestRecord, record_of
from radixserve.server.prompts import make_requests
from radixserve.server.responses.body import Reasoning, ResponsesBody, TextConfig, TextFormat
from radixserve.server.responses.items import Item
from radixserve.server.responses.replies import DeletedResponse, Response
from radixserve.server.responses.store import ResponseStore
from radixserve.server.responses.wording import ResponseBuilder
from radixserve.server.service import Service, json_reply, offload, service_of


async def create_response(request: Request) -> Generation:
    """Answers, whole or as a stream."""
    body = await read_body(request, ResponsesBody)
    if body.previous_response_id is not None:
        record_of(request).body_bytes += service_of(request).responses.get(body.previous_response_id).size
    return await offload(request, lambda: _answer(body, service_of(request), record_of(request)))


def _answer(body: ResponsesBody, service: Service, record: RequestRecord) -> Generation:
    served = service.find_model(body.model)
    body.refuse()
    before = [] if body.previous_response_id is None else service.responses.get(body.previous_response_id).items
    items = before + body.items
    record.names = body.names
    turn = prepare(body.to_conversation(items), service)
    params = body.sampling_params(
        service.info.sampling_defaults,
        max_tokens=body.max_output_tokens,
        logprobs=body.alternatives,
        grammar=turn.grammar,
        skip_special_tokens=turn.skip_special_tokens,
    )
    requests = make_requests([turn.prompt_ids], params, service.info.limits, body, record.id, served.adapter)
    begun = _begin(body, served.name, service.now(), params)

    def keep(response: Response) -> None:
        if response.store:
            _keep(service.responses, response, items)

    wording = ResponseBuilder(service.tokenizer, begun, turn, keep)
    return service.generate(record, wording, requests, stream=bool(body.stream), checks=[turn.check])


async def get_response(request: Request) -> HttpResponse:
    """A response that is kept here."""
    if request.query_params.get("stream") not in (None, "false"):
        raise InvalidRequestError("stream is set: a response that is done is not streamed again; leave it out", param="stream")
    return HttpResponse(service_of(request).responses.get(request.path_params["name"]).body, media_type="application/json")


async def delete_response(request: Request) -> HttpResponse:
    """Forgets a response."""
    name = request.path_params["name"]
    service_of(request).responses.delete(name)
    return json_reply(DeletedResponse(id=name))


def _keep(store: ResponseStore, response: Response, items: list[Item]) -> None:
    store.put(response.id, msgspec.json.encode(response), items + msgspec.to_builtins(response.output))


def _begin(body: ResponsesBody, model: str, now: int, params: SamplingParams) -> Response:
    """Its id is not made of the client's X-Request-Id: who doesn't know it can't read the conversation."""
    text = body.text or TextConfig()
    return Response(
        id=f"resp_{uuid.uuid4().hex}",
        created_at=now,
        status="in_progress",
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        metadata=body.metadata or {},
        model=model,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        previous_response_id=body.previous_response_id,
        reasoning=body.reasoning or Reasoning(),
        store=body.store is not False,
        temperature=params.temperature,
        text=TextConfig(text.format or TextFormat("text"), text.verbosity),
        tool_choice=body.tool_choice or "auto",
        tools=body.tools or [],
        top_logprobs=body.top_logprobs or 0,
        top_p=params.top_p,
        user=body.user,
    )
