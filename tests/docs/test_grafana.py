"""The Grafana dashboard asks only for metrics that the server exports."""

import json
import re
from pathlib import Path
from typing import Any

from radixserve.ipc import EngineStats
from radixserve.observe.metrics import EngineCollector, Metrics
from radixserve.observe.observer import Observer
from tests.hash_runner import hash_engine

DASHBOARD = json.loads((Path(__file__).parents[2] / "docs/grafana/radixserve.json").read_text())
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def exported() -> set[str]:
    """Names as Prometheus stores them."""
    engine = hash_engine(16)
    engine.observer = Observer(engine.scheduler, "lru")
    metrics = Metrics(EngineCollector(lambda: stats, lambda: True))
    stats: EngineStats = engine.stats()
    families = [family for family in metrics.registry.collect() if not family.name.endswith("_created")]
    return {family.name + suffix for family in families for suffix in SUFFIXES[family.type]}


def expressions() -> list[str]:
    targets: list[dict[str, Any]] = [target for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]
    return [target["expr"] for target in targets]


def test_every_metric_that_a_panel_asks_for_exists() -> None:
    asked = {name for text in expressions() for name in re.findall(r"\bradixserve_\w+", text)}
    assert len(asked) > 20
    assert asked - exported() == set()


def test_pools_that_a_panel_asks_for_are_estimated() -> None:
    engine = hash_engine(16)
    report = Observer(engine.scheduler, "lru").report()
    asked = {pool for text in expressions() for pool in re.findall(r'pool="([^"]+)"', text)}
    assert asked <= set(report.lru_reused)


def test_panels_do_not_overlap() -> None:
    cells = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        covered = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & covered
        assert place["x"] + place["w"] <= 24
        cells |= covered
