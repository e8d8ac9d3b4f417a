"""Metrics are what the engine says, and documented."""

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from radixserve.ipc import EngineInfo, EngineStats
from radixserve.limits import Limits
from radixserve.observe.metrics import EngineCollector, Metrics
from radixserve.replicas.collector import ReplicaCollector
from radixserve.replicas.state import Member

DOCS = Path(__file__).parents[3] / "docs/metrics.md"
STATS = EngineStats(
    num_waiting=1,
    num_running=2,
    num_slots=100,
    free_slots=40,
    evictable_slots=30,
    protected_slots=20,
    request_slots=10,
    prompt_tokens=50,
    cached_tokens=25,
    finished={"stop": 3, "abort": 1},
)


def families(metrics: Metrics) -> dict[str, str]:
    found = text_string_to_metric_families(metrics.render().decode())
    return {family.name: family.type for family in found if not family.name.endswith("_created")}


def test_every_metric_is_documented_with_its_kind_and_no_other() -> None:
    documented = dict(re.findall(r"^\| `(radixserve_\w+)` \| (\w+) \|", DOCS.read_text(), re.MULTILINE))
    info = EngineInfo("fake", "float32", "cpu", Limits(50, 100, 100, 1), kv_bytes=0, num_threads=1)
    replicas = Metrics(ReplicaCollector(lambda: [Member("a", info, STATS)]))
    assert families(Metrics(EngineCollector(lambda: STATS, lambda: True))) | families(replicas) == documented


def test_values_are_the_engine_s_latest() -> None:
    stats, alive = STATS, True
    metrics = Metrics(EngineCollector(lambda: stats, lambda: alive))
    value = metrics.registry.get_sample_value
    assert value("radixserve_waiting_requests") == 1
    assert value("radixserve_cached_tokens_total") == 25
    assert value("radixserve_requests_total", {"finish_reason": "stop"}) == 3
    assert sum(value("radixserve_slots", {"state": s}) or 0 for s in ("free", "evictable", "protected", "request")) == 100
    stats, alive = EngineStats(num_waiting=7), False
    assert value("radixserve_waiting_requests") == 7
    assert value("radixserve_engine_up") == 0


def test_two_servers_do_not_mix() -> None:
    first, second = Metrics(EngineCollector(EngineStats, lambda: True)), Metrics(EngineCollector(EngineStats, lambda: True))
    first.count_http_request(200)
    assert first.registry.get_sample_value("radixserve_http_requests_total", {"status": "200"}) == 1
    assert second.registry.get_sample_value("radixserve_http_requests_total", {"status": "200"}) is None
