"""The adapters of an engine by name: loaded, unloaded and looked up, in the order of its messages.

Every load gets a number, from 1 on, that is never given again. It is part of the namespace in the tree: what was computed with one
load of a name is never found by another. An adapter that a request still uses stays: to unload it is refused as busy.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from radixserve.cache.pins import Pins
from radixserve.cache.prefix_cache import PrefixCache
from radixserve.errors import InvalidRequestError, ModelError
from radixserve.messages import CommandResult, LoadAdapter, RequestFailed, UnloadAdapter
from radixserve.req import ExtraKey, Req

MAX_NAME_LEN = 128
"""In characters. A name stays in memory as long as what was cached under it."""


class AdapterWeights(Protocol):
    """Where the weights go: a decoder's adapters, or nothing where only decisions matter."""

    def load(self, number: int, directory: str) -> str:
        """Reads a PEFT directory; returns what is in it, in a few words. Raises ModelError and changes nothing."""

    def unload(self, number: int) -> None:
        """Forgets it."""


class NoWeights:
    """Of an engine without a model: takes every adapter."""

    def load(self, number: int, directory: str) -> str:
        return "not read"

    def unload(self, number: int) -> None:
        pass


class SplitWeights:
    """Of an engine whose model is split over ranks: takes no adapter."""

    def load(self, number: int, directory: str) -> str:
        raise ModelError("the model is split over ranks, which take no adapters: start with --tensor-parallel 1 for them")

    def unload(self, number: int) -> None:
        pass


class Loaded(NamedTuple):
    """A loaded adapter."""

    number: int
    directory: str


class NamedAdapters:
    """The adapters that requests may name. `reqs`: the engine's requests, kept up to date by it."""

    def __init__(self, cache: PrefixCache, pins: Pins, reqs: Mapping[str, Req], weights: AdapterWeights) -> None:
        self._cache = cache
        self._pins = pins
        self._reqs = reqs
        self._weights = weights
        self._loaded: dict[str, Loaded] = {}
        self._num_loads = 0

    @property
    def loaded(self) -> Mapping[str, Loaded]:
        """By name, in the order of their loads."""
        return self._loaded

    def extra_key(self, adapter: str | None, cache_salt: str | None) -> ExtraKey:
        """The namespace of a request. Raises InvalidRequestError for an adapter that is not loaded."""
        if adapter is None:
            return ExtraKey(None, cache_salt)
        return ExtraKey(adapter, cache_salt, self._find(adapter).number)

    def load(self, message: LoadAdapter) -> CommandResult | RequestFailed:
        """Loads an adapter under a name that is free."""
        name = message.name
        try:
            self._check_name(name)
            what = self._weights.load(self._num_loads + 1, message.directory)
        except InvalidRequestError as error:
            return RequestFailed(message.rid, "invalid_request", error.message, error.param, error.code)
        except ModelError as error:
            return RequestFailed(message.rid, "invalid_request", f"adapter {name!r}: {error}", "lora_path")
        self._num_loads += 1
        self._loaded[name] = Loaded(self._num_loads, message.directory)
        return CommandResult(message.rid, f"loaded adapter {name!r} ({what})")

    def unload(self, message: UnloadAdapter) -> CommandResult | RequestFailed:
        """Forgets an adapter and all that was cached under it, pins included, unless requests use it."""
        try:
            number = self._find(message.name).number
        except InvalidRequestError as error:
            return RequestFailed(message.rid, "invalid_request", error.message, error.param, error.code)
        if num_open := sum(req.extra_key.adapter_load == number for req in self._reqs.values()):
            wish = f"can't unload adapter {message.name!r} now: {num_open} requests use it"
            return RequestFailed(message.rid, "busy", f"{wish}; try again when they have ended, or abort them")
        dropped = 0
        for extra_key, root in list(self._cache.tree.roots.items()):
            if extra_key.adapter_load == number:
                self._pins.unpin(root)
                dropped += sum(self._cache.evict_below(child) for child in list(root.children.values()))
        self._weights.unload(number)
        del self._loaded[message.name]
        return CommandResult(message.rid, f"unloaded adapter {message.name!r} and dropped {dropped} cached tokens")

    def _check_name(self, name: str) -> None:
        if not 0 < len(name) <= MAX_NAME_LEN or "=" in name:
            raise InvalidRequestError(
                f"the adapter's name is {name[:MAX_NAME_LEN]!r}: must have 1 to {MAX_NAME_LEN} characters and no =",
                param="lora_name",
            )
        if name in self._loaded:
            raise InvalidRequestError(
                f"adapter {name!r} is loaded already: unload it first, or choose another name", param="lora_name"
            )

    def _find(self, name: str) -> Loaded:
        if name in self._loaded:
            return self._loaded[name]
        known = f"loaded are {', '.join(map(repr, self._loaded))}" if self._loaded else "no adapter is"
        raise InvalidRequestError(f"adapter {name[:MAX_NAME_LEN]!r} is not loaded: {known}", param="model", code="model_not_found")
