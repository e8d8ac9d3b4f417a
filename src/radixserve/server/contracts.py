"""What each endpoint takes and answers, by method and path: what the OpenAPI document is made from."""

from dataclasses import dataclass, field
from typing import Any

from radixserve.server.cache_routes import EvictBody, PinBody, UnpinBody
from radixserve.server.messages.body import CountBody, MessagesBody
from radixserve.server.messages.replies import MessageEvent, MessageReply, TokenCount
from radixserve.server.native_protocol import NativeBody, NativeChoice
from radixserve.server.protocol import (
    AbortBody,
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    LoadAdapterBody,
    TokenizeBody,
    UnloadAdapterBody,
    WeightsBody,
)
from radixserve.server.replies import ChatChunk, ChatCompletion, Completion, Model, ModelList, Tokens
from radixserve.server.responses.body import ResponsesBody
from radixserve.server.responses.replies import DeletedResponse, Response, ResponseEvent

Object = dict[str, Any]


@dataclass(frozen=True)
class Contract:
    """`body`, `reply` and `event` (the data of one frame of a stream): types that have a JSON Schema; a `reply` of None is no JSON.

    `media`: of a reply that is no JSON. `query`: parameters, and whether they must be sent.
    """

    summary: str
    body: Any = None
    reply: Any = None
    event: Any = None
    media: str = "application/json"
    query: dict[str, bool] = field(default_factory=dict)


CONTRACTS: dict[tuple[str, str], Contract] = {
    ("POST", "/v1/completions"): Contract("Continues prompts", CompletionBody, Completion, Completion),
    ("POST", "/v1/chat/completions"): Contract("The next turn of a conversation", ChatBody, ChatCompletion, ChatChunk),
    ("POST", "/v1/responses"): Contract("The next turn of a conversation", ResponsesBody, Response, ResponseEvent),
    ("GET", "/v1/responses/{name}"): Contract("A response that is kept", reply=Response, query={"stream": False}),
    ("DELETE", "/v1/responses/{name}"): Contract("Forgets a response", reply=DeletedResponse),
    ("POST", "/v1/messages"): Contract("The next message of a conversation", MessagesBody, MessageReply, MessageEvent),
    ("POST", "/v1/messages/count_tokens"): Contract("How many tokens a prompt has", CountBody, TokenCount),
    ("POST", "/generate"): Contract("Continues prompts", NativeBody, NativeChoice | list[NativeChoice], NativeChoice),
    ("POST", "/abort_request"): Contract("Ends requests", AbortBody, Object),
    ("POST", "/v1/embeddings"): Contract("400: no model that is served has any", Object, Object),
    ("GET", "/v1/models"): Contract("The served model and its adapters", reply=ModelList),
    ("GET", "/v1/models/{name}"): Contract("The served model or an adapter, by its name", reply=Model),
    ("GET", "/health"): Contract("200 while the engine lives", reply=Object),
    ("GET", "/health_generate"): Contract("The same, after a token has gone through the engine", reply=Object),
    ("GET", "/metrics"): Contract("Prometheus metrics", media="text/plain"),
    ("GET", "/server_info"): Contract("Version, limits, settings, figures", reply=Object),
    ("GET", "/get_model_info"): Contract("The model's name, as SGLang's clients ask for it", reply=Object),
    ("GET", "/version"): Contract("The version", reply=Object),
    ("GET", "/openapi.json"): Contract("This document", reply=Object),
    ("POST", "/flush_cache"): Contract("Empties the radix tree", reply=Object),
    ("POST", "/update_weights"): Contract("Loads other weights of the same shape", WeightsBody, Object),
    ("POST", "/v1/load_lora_adapter"): Contract("Loads an adapter", LoadAdapterBody, Object),
    ("POST", "/v1/unload_lora_adapter"): Contract("Forgets an adapter", UnloadAdapterBody, Object),
    ("POST", "/tokenize"): Contract("Token ids of a prompt or a conversation", TokenizeBody, Tokens),
    ("POST", "/detokenize"): Contract("The text of token ids", DetokenizeBody, Object),
    ("GET", "/tokenizer_info"): Contract("Special tokens and the chat template", reply=Object),
    ("GET", "/cache/tree"): Contract("The tree, the slots and the requests", reply=Object),
    ("GET", "/cache/events"): Contract("The same, as they change", media="text/event-stream"),
    ("GET", "/cache/node/{node}"): Contract("One node with its whole text", reply=Object),
    ("GET", "/cache/search"): Contract("The nodes in whose edge a text ends", reply=Object, query={"text": True}),
    ("GET", "/cache/export"): Contract("The prompts that are cached", media="application/jsonl", query={"node": False}),
    ("GET", "/cache/explain"): Contract("Why a request reused what it reused", reply=Object, query={"request_id": True}),
    ("GET", "/cache/top"): Contract("The prefixes whose reuse saved most", reply=Object, query={"count": False}),
    ("POST", "/cache/pin"): Contract("Keeps a prefix in the cache", PinBody, Object),
    ("POST", "/cache/unpin"): Contract("Keeps it no more", UnpinBody, Object),
    ("POST", "/cache/evict"): Contract("Evicts a node and all below it", EvictBody, Object),
    ("POST", "/cache/warm"): Contract("Computes prompts, a line each", str, Object),
}
