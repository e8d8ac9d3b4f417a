"""Prometheus metrics: what requests experienced, measured here, and what the engine reports of itself (`EngineStats`).

A registry of our own, so that two servers in one process don't mix. Every metric is explained in `docs/metrics.md`.
"""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from radixserve.ipc import EngineStats
from radixserve.observe.cache_metrics import cache_metrics

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
GAP_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2.5, 5)
TOKENS = (1, 8, 32, 128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)

GAUGES = {
    "num_waiting": ("waiting_requests", "Requests that wait to be admitted"),
    "num_running": ("running_requests", "Requests that run"),
    "num_nodes": ("tree_nodes", "Nodes of the radix tree"),
}
COUNTERS = {
    "num_steps": ("steps", "Steps of the model"),
    "prompt_tokens": ("prompt_tokens", "Prompt tokens of requests that were admitted and have ended, each counted once"),
    "cached_tokens": ("cached_tokens", "Prompt tokens reused from the cache at first admission"),
    "computed_tokens": ("computed_tokens", "Positions that the model ran, recomputation after preemption included"),
    "generated_tokens": ("generated_tokens", "Tokens generated"),
    "forced_tokens": ("forced_tokens", "Tokens generated without a step of the model, because a grammar left no choice"),
    "evicted_tokens": ("evicted_tokens", "Tokens evicted from the tree"),
    "num_preemptions": ("preemptions", "Times that a running request was put back to waiting"),
}
SLOT_STATES = ("free", "evictable", "protected", "request")


class Metrics:
    """Everything that /metrics shows. `engine` tells what the engine says of itself."""

    def __init__(self, engine: Collector) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(engine)
        self.time_to_first_token = self._histogram(
            "time_to_first_token_seconds", "From a request's arrival to its first token", SECONDS
        )
        self.inter_token_latency = self._histogram("inter_token_latency_seconds", "Between two tokens of one choice", GAP_SECONDS)
        self.queue = self._histogram("queue_seconds", "From a request's arrival to its admission", SECONDS)
        self.request_duration = self._histogram("request_duration_seconds", "From a request's arrival to its last token", SECONDS)
        self.request_prompt_tokens = self._histogram("request_prompt_tokens", "Prompt tokens of one request", TOKENS)
        self.request_generated_tokens = self._histogram("request_generated_tokens", "Tokens generated for one request", TOKENS)
        self._http_requests = Counter(
            "radixserve_http_requests", "HTTP requests, by status of the reply", ["status"], registry=self.registry
        )

        self.schema_violations = Counter(
            "radixserve_schema_violations",
            "Finished answers that broke the schema they were held to, and were errors",
            registry=self.registry,
        )
        self.stats_age = Gauge(
            "radixserve_stats_age_seconds",
            "How old the engine's figures are: 0 unless it was too busy to tell",
            registry=self.registry,
        )

    def count_http_request(self, status: int) -> None:
        """Counts a reply; 499: the client left before it."""
        self._http_requests.labels(status=str(status)).inc()

    def render(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"radixserve_{name}", text, buckets=buckets, registry=self.registry)


class EngineCollector(Collector):
    """Turns EngineStats into metrics when Prometheus asks.

    `stats` gives the engine's latest, `alive` whether its processes run, one a rank.
    """

    def __init__(self, stats: Callable[[], EngineStats], alive: Callable[[], bool], num_ranks: int = 1) -> None:
        self._stats = stats
        self._alive = alive
        self._num_ranks = num_ranks

    def collect(self) -> Iterable[Metric]:
        """The engine's metrics, as it last told them."""
        stats = self._stats()
        yield GaugeMetricFamily("radixserve_engine_up", "1 while the engine process runs", value=int(self._alive()))
        ranks = GaugeMetricFamily("radixserve_rank_up", "1 while the process of this rank runs", labels=["rank"])
        for rank in range(self._num_ranks):
            ranks.add_metric([str(rank)], int(self._alive()))
        yield ranks
        for field, (name, text) in GAUGES.items():
            yield GaugeMetricFamily(f"radixserve_{name}", text, value=getattr(stats, field))
        for field, (name, text) in COUNTERS.items():
            yield CounterMetricFamily(f"radixserve_{name}", text, value=getattr(stats, field))
        slots = GaugeMetricFamily("radixserve_slots", "Slots of the KV pool, by owner", labels=["state"])
        for state in SLOT_STATES:
            slots.add_metric([state], getattr(stats, f"{state}_slots"))
        yield slots
        finished = CounterMetricFamily("radixserve_requests", "Requests ended, by finish reason", labels=["finish_reason"])
        for reason, count in sorted(stats.finished.items()):
            finished.add_metric([reason], count)
        yield finished
        yield from cache_metrics(stats.cache)
