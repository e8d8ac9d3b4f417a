"""A CacheReport as Prometheus metrics."""

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from radixserve.cache_report import AGES, DISTANCES, CacheReport


def cache_metrics(report: CacheReport) -> Iterator[Metric]:
    """What the engine's observer counted."""
    yield CounterMetricFamily("radixserve_admissions", "Admissions, again after preemption", value=report.num_admissions)
    cached = CounterMetricFamily(
        "radixserve_cached_tokens_by_source", "Prompt tokens reused, counted at first admission", labels=["source"]
    )
    for source, count in report.cached_by_source.items():
        cached.add_metric([source], count)
    yield cached
    evictions = CounterMetricFamily("radixserve_evictions", "Leaves evicted, by policy", labels=["policy"])
    if report.policy:
        evictions.add_metric([report.policy], report.num_evictions)
    yield evictions
    yield _histogram(
        "radixserve_eviction_age_admissions",
        "Admissions from last use to eviction",
        AGES,
        report.ages,
        report.sum_ages,
    )
    yield _histogram(
        "radixserve_reuse_distance_tokens",
        "Tokens used since the last use of each token that was looked up, itself included",
        DISTANCES,
        report.distances,
        report.sum_distances,
    )
    reused = CounterMetricFamily(
        "radixserve_lru_reused_tokens", "Estimate: prompt tokens that LRU would have reused, by size of the pool", labels=["pool"]
    )
    for pool, count in report.lru_reused.items():
        reused.add_metric([pool], count)
    yield reused
    rates = GaugeMetricFamily(
        "radixserve_estimated_hit_rate", "Estimate: hit rate since the start with a pool of another size", labels=["pool"]
    )
    for pool, rate in report.hit_rates.items():
        rates.add_metric([pool], rate)
    yield rates


def _histogram(name: str, text: str, bounds: Sequence[int], counts: Sequence[int], total: int) -> Metric:
    """`counts`: of each bucket alone, the last of what lies beyond all bounds."""
    buckets, so_far = [], 0
    for bound, count in zip((*map(str, bounds), "+Inf"), counts, strict=True):
        so_far += count
        buckets.append((bound, so_far))
    return HistogramMetricFamily(name, text, buckets=buckets, sum_value=total)
