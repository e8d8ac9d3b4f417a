"""What each endpoint takes and answers, by method and path: what the OpenAPI document is made from."""

from dataclasses import dataclass, field
from typing import Any

from radixserve.server.admin.bodies import (
    AbortBody,
    DetokenizeBody,
    LoadAdapterBody,
    TokenizeBody,
    UnloadAdapterBody,
    WeightsBody,
)
from radixserve.server.anthropic.body import CountBody, MessagesBody
from radixserve.server.anthropic.errors import MessageErrorBody
from radixserve.server.anthropic.replies import MessageEvent, MessageReply, TokenCount
from radixserve.server.cache.routes import EvictBody, PinBody, UnpinBody
from radixserve.server.errors import ErrorBody
from radixserve.server.openai.bodies import ChatBody, CompletionBody
from radixserve.server.openai.replies import ChatChunk, ChatCompletion, Completion, Model, ModelList, Tokens
from radixserve.server.responses.body import ResponsesBody
from radixserve.server.responses.replies import DeletedResponse, Response, ResponseEvent
from radixserve.server.sglang.protocol import GenerateBody, GenerateChoice

Object = dict[str, Any]


@dataclass(frozen=True)
class EndpointSpec:
    """`body`, `reply` and `event` (the data of one frame of a stream): types that have a JSON Schema; a `reply` of None is no JSON.

    `media`: of a reply that is no JSON. `query`: parameters, and whether they must be sent.
    """

    summary: str
    body: Any = None
    reply: Any = None
    event: Any = None
    media: str = "application/json"
    query: dict[str, bool] = field(default_factory=dict)
    error: Any = ErrorBody


CONTRACTS: dict[tuple[str, str], EndpointSpec] = {
    ("POST", "/v1/completions"): EndpointSpec("Continues prompts", CompletionBody, Completion, Completion),
    ("POST", "/v1/chat/completions"): EndpointSpec("The next turn of a conversation", ChatBody, ChatCompletion, ChatChunk),
    ("POST", "/v1/responses"): EndpointSpec("The next turn of a conversation", ResponsesBody, Response, ResponseEvent),
    ("GET", "/v1/responses/{name}"): EndpointSpec("A response that is kept", reply=Response, query={"stream": False}),
    ("DELETE", "/v1/responses/{name}"): EndpointSpec("Forgets a response", reply=DeletedResponse),
    ("POST", "/v1/messages"): EndpointSpec(
        "The next message of a conversation", MessagesBody, MessageReply, MessageEvent, error=MessageErrorBody
    ),
    ("POST", "/v1/messages/count_tokens"): EndpointSpec(
        "How many tokens a prompt has", CountBody, TokenCount, error=MessageErrorBody
    ),
    ("POST", "/generate"): EndpointSpec("Continues prompts", GenerateBody, GenerateChoice | list[GenerateChoice], GenerateChoice),
    ("POST", "/abort_request"): EndpointSpec("Ends requests", AbortBody, Object),
    ("POST", "/v1/embeddings"): EndpointSpec("400: no model that is served has any", Object, Object),
    ("GET", "/v1/models"): EndpointSpec("The served model and its adapters", reply=ModelList),
    ("GET", "/v1/models/{name}"): EndpointSpec("The served model or an adapter, by its name", reply=Model),
    ("GET", "/health"): EndpointSpec("200 while the engine lives", reply=Object),
    ("GET", "/health_generate"): EndpointSpec("The same, after a token has gone through the engine", reply=Object),
    ("GET", "/metrics"): EndpointSpec("Prometheus metrics", media="text/plain"),
    ("GET", "/server_info"): EndpointSpec("Version, limits, settings, figures", reply=Object),
    ("GET", "/get_model_info"): EndpointSpec("The model's name, as SGLang's clients ask for it", reply=Object),
    ("GET", "/version"): EndpointSpec("The version", reply=Object),
    ("GET", "/openapi.json"): EndpointSpec("This document", reply=Object),
    ("POST", "/flush_cache"): EndpointSpec("Empties the radix tree", reply=Object),
    ("POST", "/update_weights"): EndpointSpec("Loads other weights of the same shape", WeightsBody, Object),
    ("POST", "/v1/load_lora_adapter"): EndpointSpec("Loads an adapter", LoadAdapterBody, Object),
    ("POST", "/v1/unload_lora_adapter"): EndpointSpec("Forgets an adapter", UnloadAdapterBody, Object),
    ("POST", "/tokenize"): EndpointSpec("Token ids of a prompt or a conversation", TokenizeBody, Tokens),
    ("POST", "/detokenize"): EndpointSpec("The text of token ids", DetokenizeBody, Object),
    ("GET", "/tokenizer_info"): EndpointSpec("Special tokens and the chat template", reply=Object),
    ("GET", "/cache/tree"): EndpointSpec("The tree, the slots and the requests", reply=Object),
    ("GET", "/cache/events"): EndpointSpec("The same, as they change", media="text/event-stream"),
    ("GET", "/cache/node/{node}"): EndpointSpec("One node with its whole text", reply=Object),
    ("GET", "/cache/search"): EndpointSpec("The nodes in whose edge a text ends", reply=Object, query={"text": True}),
    ("GET", "/cache/export"): EndpointSpec("The prompts that are cached", media="application/jsonl", query={"node": False}),
    ("GET", "/cache/explain"): EndpointSpec("Why a request reused what it reused", reply=Object, query={"request_id": True}),
    ("GET", "/cache/top"): EndpointSpec("The prefixes whose reuse saved most", reply=Object, query={"count": False}),
    ("POST", "/cache/pin"): EndpointSpec("Keeps a prefix in the cache", PinBody, Object),
    ("POST", "/cache/unpin"): EndpointSpec("Keeps it no more", UnpinBody, Object),
    ("POST", "/cache/evict"): EndpointSpec("Evicts a node and all below it", EvictBody, Object),
    ("POST", "/cache/warm"): EndpointSpec("Computes prompts, a line each", str, Object),
}
