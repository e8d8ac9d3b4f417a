"""What clients do to a server while others stream from it: long texts to tokenize, long chats, new schemas, answers not read.

None of them gives the model more than a little to do, so that what a stream loses beside them, it loses by waiting.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from radixserve.bench.client import BenchClient
from radixserve.errors import ConfigError

CLIENTS = 2
"""That do it at once, one request after another."""
WORDS = ("why", "my", "code", "throws", "errors", "and", "memory", "runs", "out", "is", "slow", "won't", "compile", "today")
TEXT_WORDS = 8_000
CHAT_TURNS = 200
SLOW_ANSWER = 1_000

Act = Callable[[BenchClient, str, random.Random], Awaitable[None]]
"""One request, for a model of this name. Returns when it is answered."""


@dataclass
class Count:
    """Requests that were answered."""

    done: int = 0


async def tokenize(client: BenchClient, model: str, rng: random.Random) -> None:
    """A text about as long as the context."""
    await client.request("POST", "/tokenize", {"model": model, "prompt": _text(rng, TEXT_WORDS)})


async def template(client: BenchClient, model: str, rng: random.Random) -> None:
    """A conversation of many turns, put through the chat template."""
    roles = ("user", "assistant")
    messages = [{"role": roles[turn % 2], "content": _text(rng, 20)} for turn in range(CHAT_TURNS + 1)]
    await client.request("POST", "/tokenize", {"model": model, "messages": messages})


async def compile_schema(client: BenchClient, model: str, rng: random.Random) -> None:
    """A token of an answer under a schema that the server has never seen."""
    leaves = {f"{rng.choice(WORDS)}{number}": {"type": "string", "maxLength": rng.randrange(9, 999)} for number in range(40)}
    schema = {"type": "object", "properties": leaves, "required": list(leaves), "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "record", "schema": schema}}
    messages = [{"role": "user", "content": "Go."}]
    body = {"model": model, "messages": messages, "max_tokens": 1, "response_format": form}
    await client.request("POST", "/v1/chat/completions", body)


async def read_nothing(client: BenchClient, model: str, rng: random.Random) -> None:
    """A stream of long frames of which nothing is read; left when the others are done."""
    body = {"model": model, "prompt": _text(rng, 8), "max_tokens": SLOW_ANSWER, "ignore_eos": True, "logprobs": 20, "stream": True}
    async with client.stream("/v1/completions", body) as reply:
        if reply.status_code != 200:
            raise ConfigError(f"a stream that is not to be read was refused: {(await reply.aread())[:200].decode()}")
        await asyncio.Event().wait()


BACKGROUND_LOADS: dict[str, Act | None] = {
    "nothing": None,
    "long texts tokenized": tokenize,
    "long chats templated": template,
    "new schemas compiled": compile_schema,
    "answers not read": read_nothing,
}


@contextlib.asynccontextmanager
async def background_load(client: BenchClient, model: str, act: Act | None) -> AsyncIterator[Count]:
    """CLIENTS go on with `act` until the context ends; none where it is None. Raises what a request raised."""
    count = Count()

    async def go_on(number: int) -> None:
        rng = random.Random(number)
        while act is not None:
            await act(client, model, rng)
            count.done += 1

    tasks = [asyncio.create_task(go_on(number)) for number in range(CLIENTS if act is not None else 0)]
    try:
        yield count
    finally:
        for task in tasks:
            task.cancel()
        outcomes: list[Any] = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome


def _text(rng: random.Random, num_words: int) -> str:
    return " ".join(rng.choices(WORDS, k=num_words))
