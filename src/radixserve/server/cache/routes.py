"""`/cache/…`: look at the cache, and act on it. What shows prompts is served where prompts may be seen: see `show`."""

import asyncio
import codecs
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from radixserve.errors import InvalidRequestError
from radixserve.ipc import CacheCommand, GenerateRequest
from radixserve.sampling_params import SamplingParams
from radixserve.server.cache.explanations import with_text
from radixserve.server.cache.feed import CacheFeed
from radixserve.server.cache.view import parents_first, salt_digest, search, top_view
from radixserve.server.errors import HttpError
from radixserve.server.fields import Int, check_salt
from radixserve.server.http.body import read_body, read_bytes
from radixserve.server.middleware.browser_guard import is_loopback
from radixserve.server.middleware.request_log import record_of
from radixserve.server.prompts import as_token_ids
from radixserve.server.service import Service, json_reply, offload, service_of
from radixserve.tokens import as_ids, token_bytes, token_len

MAX_DIGITS = 18
"""Of a number in a URL: Python refuses to read some thousands."""
MAX_FOUND = 200
MAX_WARM_PROMPTS = 10_000

WARM_PARAMS = SamplingParams(max_tokens=1, temperature=0.0)
"""One token is sampled, so that the whole prompt is computed; its own KV is not."""

WARM_TOKENS = 512
"""Prompts are sent in groups of so many tokens, or singly: what another request may have to wait for."""

WARM_PRIORITY = -(2**31)
"""Every other request that waits comes first."""


class Prefix(msgspec.Struct, frozen=True):
    """A prompt as a text, as token ids, or as a conversation after the chat template. `model`: an adapter's name, or the base's.

    `salt`: the digest that an export has in place of the salt.
    """

    prompt: str | list[int] | None = None
    messages: list[dict[str, Any]] | None = None
    cache_salt: str | None = None
    salt: str | None = None
    model: str | None = None

    def tokens(self, service: Service) -> bytes:
        """int32 token ids. Raises InvalidRequestError unless there is exactly one of the forms."""
        if (self.prompt is None) == (self.messages is None):
            raise InvalidRequestError("send either prompt or messages, not both and not neither", param="prompt")
        check_salt(self.cache_salt)
        if self.salt is not None and self.cache_salt is None:
            raise InvalidRequestError(
                f"it comes from a namespace whose cache_salt is not shown, only its digest {self.salt[:20]!r}: add the cache_salt",
                param="cache_salt",
            )
        tokenizer = service.tokenizer
        if self.messages is not None:
            return token_bytes(
                tokenizer.encode_chat(
                    self.messages,
                    add_generation_prompt=False,
                    check=lambda num_chars: service.check_text(num_chars, "messages"),
                )
            )
        if isinstance(self.prompt, list):
            return token_bytes(as_token_ids(self.prompt, service.info.limits.vocab_size))
        assert self.prompt is not None
        service.check_text(len(self.prompt), "prompt")
        return token_bytes(tokenizer.encode(self.prompt))


class PinBody(Prefix, frozen=True):
    """What to pin: a node, with `subtree` all leaves at or below it, or the cached part of a prompt."""

    node: Int | None = None
    subtree: bool = False


class UnpinBody(msgspec.Struct, frozen=True):
    """What to unpin: everything at or below a node, or `all`."""

    node: Int | None = None
    all: bool = False


class EvictBody(msgspec.Struct, frozen=True):
    """A node, with all below it."""

    node: Int


Handler = Callable[[Request], Awaitable[Response]]


def feed_of(request: Request) -> CacheFeed:
    """Of the replica that the query names, by default the first. Raises HttpError 404 for a name that is unknown."""
    return service_of(request).feed(request.query_params.get("replica"))


def show(handler: Handler) -> Handler:
    """Refuses what shows prompts (403) where strangers could read them, or the page is off."""

    async def guarded(request: Request) -> Response:
        config = service_of(request).config
        if config.ui == "off":
            raise HttpError(403, "the live page and its data are off: start the server with --ui on or auto", code="ui_off")
        if config.ui == "auto" and config.api_key is None and not is_loopback(config.host):
            raise HttpError(
                403,
                f"the cache shows prompts, and the server listens on {config.host} without an API key: set --api-key, or allow it "
                "with --ui on",
                code="ui_not_allowed",
            )
        return await handler(request)

    return guarded


def _node_number(text: str) -> int:
    if not text.isdecimal() or len(text) > MAX_DIGITS:
        raise InvalidRequestError(f"node is {text[:50]!r}: must be the number of a node", param="node")
    return int(text)


async def tree(request: Request) -> Response:
    """The whole cache, as in the first frame of the events."""
    feed = feed_of(request)
    async with feed.mirror() as mirror:
        return json_reply(feed.view.snapshot(mirror))


async def events(request: Request) -> Response:
    """The cache as server-sent events: a snapshot, then what changes, about 20 times a second at most."""
    feed = feed_of(request)

    async def stream() -> AsyncIterator[bytes]:
        async with contextlib.aclosing(feed.frames()) as frames:
            async for kind, content in frames:
                yield b"event: " + kind.encode() + b"\ndata: " + msgspec.json.encode(content) + b"\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream", headers={"cache-control": "no-store"})


async def node(request: Request) -> Response:
    """One node with the whole text of its edge and of the prefix that ends there."""
    feed, serial = feed_of(request), _node_number(request.path_params["node"])
    async with feed.mirror() as mirror:
        _check_node(serial, mirror.nodes)
        path = mirror.path(serial)
        tokens = b"".join(passed.tokens for passed in path)
        edge = path[-1].tokens if path else b""
        text = {"edge_text": feed.view.text(edge), "prefix_text": feed.view.text(tokens), "prefix_tokens": token_len(tokens)}
        return json_reply(feed.view.node(mirror.nodes[serial]) | text)


async def find(request: Request) -> Response:
    """The nodes in whose edge a text ends."""
    feed, wanted = feed_of(request), request.query_params.get("text", "")
    if not wanted:
        raise InvalidRequestError("text is missing: /cache/search?text=…", param="text")
    if feed.view.redacted:
        raise HttpError(403, "texts are hidden (--ui-redact): there is nothing to search in", code="redacted")
    async with feed.mirror() as mirror:
        nodes = [(node.serial, node.parent, node.tokens) for node in parents_first(mirror)]
    return json_reply({"nodes": await asyncio.to_thread(search, feed.view, nodes, wanted, MAX_FOUND)})


async def export(request: Request) -> Response:
    """The prompts that end at the leaves at or below a node, one JSON object a line: what `warm` reads."""
    feed = feed_of(request)
    if feed.view.redacted:
        raise HttpError(403, "texts are hidden (--ui-redact): prompts can't be exported", code="redacted")
    wanted = request.query_params.get("node")
    serial = _node_number(wanted) if wanted is not None else None
    lines = []
    async with feed.mirror() as mirror:
        _check_node(serial, mirror.nodes)
        tops = [serial] if serial is not None else [node.serial for node in mirror.nodes.values() if not node.parent]
        for leaf in (node for top in tops for node in mirror.below(top) if node.parent and not node.num_children):
            tokens = b"".join(passed.tokens for passed in mirror.path(leaf.serial))
            key = mirror.root_of(leaf.serial).extra_key
            namespace = {"salt": salt_digest(key.cache_salt), "model": key.adapter} if key is not None else {}
            given = {name: value for name, value in namespace.items() if value is not None}
            ids = memoryview(tokens).cast("i").tolist()
            lines.append(msgspec.json.encode({"prompt": ids, **given, "text": feed.view.text(tokens)}) + b"\n")
    return Response(b"".join(lines), media_type="application/jsonl")


async def explain(request: Request) -> Response:
    """Why a recent request reused what it reused: one explanation a prompt and choice, in the order of their admission."""
    service = service_of(request)
    request_id = request.query_params.get("request_id")
    if not request_id:
        raise InvalidRequestError("request_id is missing: send the X-Request-Id of a recent request", param="request_id")
    found = await service.client.explain(request_id)
    if not found:
        message = f"the request {request_id[:100]!r} is not known: it never ran here, or too many have since"
        raise HttpError(404, message, code="unknown_request")
    view = service.view
    told = [with_text(explanation, lambda ids: view.text(token_bytes(list(ids))), branch_text=True) for explanation in found]
    return json_reply({"explanations": told})


async def top(request: Request) -> Response:
    """The prefixes whose reuse saved most, and what each namespace holds, saved and never used."""
    feed, wanted = feed_of(request), request.query_params.get("count", "20")
    if not wanted.isdecimal() or len(wanted) > MAX_DIGITS or not 1 <= int(wanted) <= MAX_FOUND:
        raise InvalidRequestError(f"count is {wanted[:50]!r}: must be between 1 and {MAX_FOUND}", param="count")
    return json_reply(top_view(await feed.client.top(int(wanted)), feed.view))


async def pin(request: Request) -> Response:
    """Keeps a prefix, or all prefixes at or below a node, in the cache until they are unpinned."""
    service = service_of(request)
    body = await read_body(request, PinBody)
    if body.node is not None:
        return await _carry_out(request, CacheCommand("", "pin", body.node, subtree=body.subtree))
    adapter = service.find_model(body.model).adapter
    tokens = await offload(request, lambda: body.tokens(service))
    act = CacheCommand("", "pin", prompt_ids=tokens, subtree=body.subtree, cache_salt=body.cache_salt, adapter=adapter)
    return await _carry_out(request, act)


async def unpin(request: Request) -> Response:
    """Ends the pins at or below a node, or all."""
    body = await read_body(request, UnpinBody)
    if (body.node is None) != body.all:
        raise InvalidRequestError("send either node or all, not both and not neither", param="node")
    return await _carry_out(request, CacheCommand("", "unpin", body.node))


async def evict(request: Request) -> Response:
    """Evicts a node and all below it, but what is locked."""
    body = await read_body(request, EvictBody)
    return await _carry_out(request, CacheCommand("", "evict", body.node))


async def warm(request: Request) -> Response:
    """Computes prompts, one a line, so that the cache has them. A few at a time, so that other requests don't wait for all."""
    service = service_of(request)
    raw = (await read_bytes(request)).removeprefix(codecs.BOM_UTF8)
    plain = request.headers.get("content-type", "").startswith("text/plain")
    requests = await offload(request, lambda: _warm_requests(_read_lines(raw, plain=plain), service))
    record_of(request).held.close()
    figures = {"prompts": len(requests), "prompt_tokens": 0, "cached_tokens": 0}
    for group in _groups(requests):
        async with contextlib.aclosing(service.client.generate(group)) as outputs:
            async for _, output in outputs:
                figures["prompt_tokens"] += output.prompt_tokens
                figures["cached_tokens"] += output.cached_tokens
    computed = figures["prompt_tokens"] - figures["cached_tokens"]
    message = f"computed {computed} of {figures['prompt_tokens']} tokens; the others were cached"
    return json_reply({"message": message, **figures})


def _groups(requests: list[GenerateRequest]) -> Iterator[list[GenerateRequest]]:
    """The requests in order, cut where a group would have more than WARM_TOKENS."""
    group: list[GenerateRequest] = []
    num_tokens = 0
    for request in requests:
        num_tokens += token_len(request.prompt_ids)
        if group and num_tokens > WARM_TOKENS:
            yield group
            group, num_tokens = [], token_len(request.prompt_ids)
        group.append(request)
    yield group


def _warm_requests(prefixes: list[Prefix], service: Service) -> list[GenerateRequest]:
    requests = []
    for number, prefix in enumerate(prefixes, 1):
        try:
            tokens = prefix.tokens(service)
            service.info.limits.check(as_ids(tokens), WARM_PARAMS)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"prompt {number}: {error.message}", param=error.param, code=error.code) from None
        adapter = service.find_model(prefix.model).adapter
        requests.append(GenerateRequest("", tokens, WARM_PARAMS, WARM_PRIORITY, cache_salt=prefix.cache_salt, adapter=adapter))
    return requests


def _read_lines(raw: bytes, *, plain: bool) -> list[Prefix]:
    """A prompt a line: plain text, or JSON: a text, or an object with prompt or messages. Empty lines are passed over."""
    lines = [line for line in raw.splitlines() if line.strip()]
    if not lines:
        raise InvalidRequestError("the body has no prompts: send one a line", param="prompt")
    if len(lines) > MAX_WARM_PROMPTS:
        raise InvalidRequestError(f"the body has {len(lines)} prompts: at most {MAX_WARM_PROMPTS} are read at once", param="prompt")
    if plain:
        return [Prefix(line.decode(errors="replace")) for line in lines]
    found = []
    for number, line in enumerate(lines, 1):
        try:
            value = msgspec.json.decode(line, type=Prefix | str)
        except (msgspec.DecodeError, RecursionError) as error:
            what = "nested too deeply" if isinstance(error, RecursionError) else error
            raise InvalidRequestError(
                f"line {number} is not a prompt as JSON: {what}; send plain lines as Content-Type text/plain", code="invalid_json"
            ) from None
        found.append(Prefix(value) if isinstance(value, str) else value)
    return found


async def _carry_out(request: Request, message: CacheCommand) -> Response:
    replicas, named = service_of(request).client.replicas, request.query_params.get("replica")
    if named is None and len(replicas) > 1:
        message_text = f"replica is missing: name the one to act on, {', '.join(replicas)}"
        raise InvalidRequestError(message_text, param="replica")
    result = await feed_of(request).client.act(message)
    return json_reply({"message": result.message, **result.figures})


def _check_node(serial: int | None, nodes: dict[int, Any]) -> None:
    if serial is not None and serial not in nodes:
        raise HttpError(404, f"node {serial} is not in the tree: it was evicted, or never was", code="node_not_found")


ROUTES: list[BaseRoute] = [
    Route("/cache/tree", show(tree)),
    Route("/cache/events", show(events)),
    Route("/cache/node/{node}", show(node)),
    Route("/cache/search", show(find)),
    Route("/cache/export", show(export)),
    Route("/cache/explain", show(explain)),
    Route("/cache/top", show(top)),
    Route("/cache/pin", pin, methods=["POST"]),
    Route("/cache/unpin", unpin, methods=["POST"]),
    Route("/cache/evict", evict, methods=["POST"]),
    Route("/cache/warm", warm, methods=["POST"]),
]
