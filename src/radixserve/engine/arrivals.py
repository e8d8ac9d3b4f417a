"""Requests at an engine's door: checked again, since it trusts nobody, and numbered in order."""

from collections.abc import Mapping

from radixserve.engine.adapters import NamedAdapters
from radixserve.errors import InvalidRequestError
from radixserve.ipc import GenerateRequest
from radixserve.limits import Limits
from radixserve.req import Req
from radixserve.scheduler.pins import Pins
from radixserve.tokens import as_ids, token_len


class Arrivals:
    """The door of one engine. `reqs`: its open requests, kept up to date by it."""

    def __init__(
        self,
        limits: Limits,
        eos_ids: frozenset[int],
        reqs: Mapping[str, Req],
        pins: Pins,
        adapters: NamedAdapters,
        *,
        grammars: bool,
    ) -> None:
        """`grammars`: whether it can hold answers to them."""
        self._limits = limits
        self._eos_ids = eos_ids
        self._reqs = reqs
        self._pins = pins
        self._adapters = adapters
        self._grammars = grammars
        self._number = 0

    def take(self, message: GenerateRequest) -> Req:
        """The state of a new request. Raises InvalidRequestError, and counts nothing, for one that can't be served."""
        req = self._make(message, self._check(message))
        self._pins.check(req)
        self._number += 1
        return req

    def _check(self, message: GenerateRequest) -> int:
        """Its effective max_tokens."""
        if message.rid in self._reqs:
            raise InvalidRequestError(f"request id {message.rid!r} is already in use: wait for its end or send another id")
        if message.params.grammar is not None and not self._grammars:
            raise InvalidRequestError("grammars are not supported by this engine: leave the constraint out", param="grammar")
        return self._limits.check(as_ids(message.prompt_ids), message.params)

    def _make(self, message: GenerateRequest, max_tokens: int) -> Req:
        params = message.params
        return Req(
            rid=message.rid,
            arrival=self._number,
            prompt=message.prompt_ids,
            prompt_len=token_len(message.prompt_ids),
            params=params,
            max_tokens=max_tokens,
            stop_ids=frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else self._eos_ids),
            extra_key=self._adapters.extra_key(message.adapter, message.cache_salt),
            priority=message.priority,
            request_id=message.request_id or message.rid,
            explain_cache=message.explain_cache,
        )
