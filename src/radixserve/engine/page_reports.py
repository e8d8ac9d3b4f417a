"""What an engine tells a router of its cache: the pages that came and went, step by step, from an empty cache on."""

from radixserve.cache.prefix_cache import PrefixCache
from radixserve.ipc import EngineOutput, PageChange, PageNews
from radixserve.routing.reporter import Reporter


class PageReports:
    """Silent until `begin`."""

    def __init__(self) -> None:
        self._changes: list[PageChange] = []

    def begin(self, cache: PrefixCache) -> None:
        """Listens to `cache` from now on."""
        assert cache.num_nodes == 0, "pages are reported from an empty cache on"
        cache.listeners.append(Reporter(self))

    def news(self) -> list[EngineOutput]:
        """What happened since the last call."""
        if not self._changes:
            return []
        changes, self._changes = self._changes, []
        return [PageNews(changes)]

    def stored(self, pages: list[int]) -> None:
        self._changes.append(PageChange("stored", pages))

    def removed(self, pages: list[int]) -> None:
        self._changes.append(PageChange("removed", pages))

    def flushed(self) -> None:
        self._changes.append(PageChange("flushed"))
