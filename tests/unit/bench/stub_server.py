"""A tiny server with the OpenAI API, for tests of what asks one."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route


class Stub:
    """A server that answers each request with two pieces, and remembers what it was sent. Token ids of a text: see `ids`."""

    def __init__(self, *, returns_ids: bool = False, cached_tokens: int = 2) -> None:
        self.returns_ids, self.cached_tokens = returns_ids, cached_tokens
        self.bodies: list[dict[str, Any]] = []
        self.open = self.most_open = 0
        self.broken = ""
        self.app = Starlette(
            routes=[
                Route("/v1/models", self.models),
                Route("/v1/completions", self.answer, methods=["POST"]),
                Route("/v1/chat/completions", self.answer, methods=["POST"]),
                Route("/tokenize", self.tokenize, methods=["POST"]),
                Route("/flush_cache", self.flush, methods=["POST"]),
            ]
        )
        self.flushes = 0

    async def models(self, request: Request) -> Response:
        return JSONResponse({"data": [{"id": "stub"}]})

    async def flush(self, request: Request) -> Response:
        self.flushes += 1
        return JSONResponse({})

    async def tokenize(self, request: Request) -> Response:
        body = await request.json()
        return JSONResponse({"tokens": self.ids(body["messages"] if "messages" in body else body["prompt"])})

    def ids(self, content: Any) -> list[int]:
        """The bytes of a text or of messages in a row."""
        if isinstance(content, list):
            content = "".join(f"<{message['role']}>{message['content']}" for message in content) + "<assistant>"
        return list(content.encode())

    async def answer(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        if self.broken == "status":
            return JSONResponse({"error": {"message": "no"}}, status_code=500)
        prompt = body.get("prompt", body.get("messages"))
        if not isinstance(prompt, list) or "messages" in body:
            prompt = self.ids(prompt)
        frames = self.frames(prompt, body["max_tokens"], "messages" in body)
        return StreamingResponse(frames, media_type="text/event-stream")

    async def frames(self, prompt: list[int], max_tokens: int, is_chat: bool) -> AsyncIterator[str]:
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        for piece, reason in [("", None), ("ye", None), ("s", "stop")]:
            await asyncio.sleep(0)
            choice: dict[str, Any] = {"index": 0, "finish_reason": reason}
            choice |= {"delta": {"content": piece}} if is_chat else {"text": piece}
            if self.returns_ids and piece:
                choice["token_ids"] = list(piece.encode()) + ([0] if reason else [])
            yield frame({"choices": [choice]} | ({"prompt_token_ids": prompt} if self.returns_ids and not piece else {}))
            if self.broken == "frame":
                yield frame({"error": {"message": "engine died"}})
            if self.broken:
                self.open -= 1
                return
        details = {"cached_tokens": self.cached_tokens}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": max_tokens, "prompt_tokens_details": details}
        self.open -= 1
        yield frame({"choices": [], "usage": usage})
        yield "data: [DONE]\n\n"


def frame(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"


@contextmanager
def serving(stub: Stub) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(stub.app, port=0, log_level="critical", lifespan="off", ws="none"))
    socket = server.config.bind_socket()
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
