"""The adapters of an engine by name: loaded, unloaded and looked up, in the order of its messages.

Every load gets a number, from 1 on, that is never given again. It is part of the namespace in the tree: what was computed with one
load of a name is never found by another. An adapter that is unloaded, or replaced by another load of its name, is there for no new
request; its weights stay until the last request that uses them has ended.
"""

from collections.abc import Mapping
from typing import NamedTuple

from radixserve.cache.prefix_cache import PrefixCache
from radixserve.cache.pruning import Pruning
from radixserve.engine.adapter_reader import AdapterReader, AdapterWeights
from radixserve.errors import InvalidRequestError, ModelError
from radixserve.ipc import CommandResult, LoadAdapter, RequestFailed, UnloadAdapter
from radixserve.req import Req
from radixserve.scheduler.pins import Pins
from radixserve.tokens import ExtraKey

MAX_NAME_LEN = 128
"""In characters. A name stays in memory as long as what was cached under it."""


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
        self.reader = AdapterReader(weights)
        self._loaded: dict[str, Loaded] = {}
        self._leaving: dict[int, int] = {}
        """How many open requests use those that are unloaded and still used, by number. No request more will."""
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
        """Loads an adapter under a name, which is free or is to be replaced."""
        name = message.name
        try:
            adapter, what = self.reader.result(message)
            self._check_name(name, replace=message.replace)
        except InvalidRequestError as error:
            return RequestFailed.of(message.rid, error)
        except ModelError as error:
            return RequestFailed(message.rid, "invalid_request", f"adapter {name!r}: {error}", "lora_path")
        done = f"loaded adapter {name!r} ({what})"
        if name in self._loaded:
            done += f" in place of the one before; {self._unload(name)}"
        self._num_loads += 1
        self._weights.put(self._num_loads, adapter)
        self._loaded[name] = Loaded(self._num_loads, message.directory)
        return CommandResult(message.rid, done)

    def unload(self, message: UnloadAdapter) -> CommandResult | RequestFailed:
        """Forgets an adapter and all that was cached under it, pins included. Requests that use it go on."""
        try:
            self._find(message.name)
        except InvalidRequestError as error:
            return RequestFailed.of(message.rid, error)
        return CommandResult(message.rid, f"unloaded adapter {message.name!r}; {self._unload(message.name)}")

    def end(self, req: Req) -> None:
        """A request is gone: the adapter goes that was unloaded while it was the last to use it."""
        number = req.extra_key.adapter_load
        if number not in self._leaving:
            return
        self._leaving[number] -= 1
        if not self._leaving[number]:
            del self._leaving[number]
            self._drop_cached(number)
            self._weights.remove(number)

    def _unload(self, name: str) -> str:
        """Returns what was done."""
        number = self._loaded.pop(name).number
        dropped = self._drop_cached(number)
        done = f"{dropped.evicted} cached tokens were dropped" + ("" if dropped.is_done else " so far, and the others are")
        if num_open := self._num_using(number):
            self._leaving[number] = num_open
            return f"{done}, {num_open} open requests end with it"
        self._weights.remove(number)
        return done

    def _drop_cached(self, number: int) -> Pruning:
        """Drops what no request uses of that which was cached with a load: begins to, if it is much."""
        roots = [root for extra_key, root in self._cache.tree.roots.items() if extra_key.adapter_load == number]
        for root in roots:
            self._pins.unpin(root)
        return self._cache.evict_below(*(child for root in roots for child in root.children.values()))

    def _num_using(self, number: int) -> int:
        return sum(req.extra_key.adapter_load == number for req in self._reqs.values())

    def _check_name(self, name: str, *, replace: bool) -> None:
        if not 0 < len(name) <= MAX_NAME_LEN or "=" in name or not name.isprintable():
            raise InvalidRequestError(
                f"the adapter's name is {name[:MAX_NAME_LEN]!r}: must have 1 to {MAX_NAME_LEN} printable characters and no =",
                param="lora_name",
            )
        if name in self._loaded and not replace:
            raise InvalidRequestError(
                f"adapter {name!r} is loaded already: unload it, choose another name, or replace it (load_inplace)",
                param="lora_name",
            )

    def _find(self, name: str) -> Loaded:
        if name in self._loaded:
            return self._loaded[name]
        known = f"loaded are {', '.join(map(repr, self._loaded))}" if self._loaded else "no adapter is"
        raise InvalidRequestError(f"adapter {name[:MAX_NAME_LEN]!r} is not loaded: {known}", param="model", code="model_not_found")
