"""Metrics of all replicas: those of an engine, with the label `replica`, and what the router counts."""

from collections.abc import Callable, Iterable, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from radixserve.observe.metrics import EngineCollector
from radixserve.replicas.state import Member


class ReplicaCollector(Collector):
    """`members` gives the replicas as they are now."""

    def __init__(self, members: Callable[[], Sequence[Member]]) -> None:
        self._members = members

    def collect(self) -> Iterable[Metric]:
        """Each metric once, with the samples of all replicas."""
        members = self._members()
        families: dict[str, Metric] = {}
        for member in members:
            for metric in _engine(member).collect():
                family = families.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
                family.samples += [sample._replace(labels=sample.labels | {"replica": member.name}) for sample in metric.samples]
        yield from families.values()
        yield GaugeMetricFamily("radixserve_replicas", "Replicas that live", value=len(members))
        queue = GaugeMetricFamily("radixserve_router_queue_tokens", "Tokens to compute before all answer", labels=["replica"])
        requests = GaugeMetricFamily("radixserve_router_requests", "Requests that were sent to it and run", labels=["replica"])
        for member in members:
            queue.add_metric([member.name], member.queue_tokens)
            requests.add_metric([member.name], member.num_requests)
        yield queue
        yield requests


def _engine(member: Member) -> EngineCollector:
    return EngineCollector(lambda: member.stats, lambda: True, max(len(member.info.ranks), 1))
