"""The metrics of a server in the text format of Prometheus.

At a scrape the server reads counts over all runs from the database, and counts since its own start from the host.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector
from starlette.responses import Response

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from resile.server.context import ServerContext
    from resile.server.metrics.tally import Durations
    from resile.store.server_tables import Census

_GAUGES = {
    "slots": "Attempts that run on this machine at a time at most",
    "slots_used": "Attempts that run here and on workers now",
    "queue_depth": "Attempts that wait for a place",
    "workers": "Workers that are known",
    "runs_driven": "Runs that this server drives now",
}
_COUNTERS = {
    "attempts_started": ("Attempts that were started", ""),
    "attempts_ended": ("Attempts that ended, by outcome", "outcome"),
    "rules_fired": ("Rules that answered a failure, by what they decided", "then"),
    "recoveries": ("Steps that completed after a failure", ""),
    "lease_losses": ("Runs that another engine took over", ""),
}


class _Snapshot(Collector):
    """The values of one moment."""

    def __init__(self, census: Census, statistics: dict[str, Any], lag_seconds: float, commits: Durations) -> None:
        self._census = census
        self._commits = commits
        self._statistics = statistics
        self._lag_seconds = lag_seconds

    def collect(self) -> Iterator[Metric]:
        """Every metric with its values."""
        runs = GaugeMetricFamily("resile_runs", "Runs in the database, by status", labels=["status"])
        for status, count in sorted(self._census.runs.items()):
            runs.add_metric([status], count)
        yield runs
        yield GaugeMetricFamily("resile_parked", "Failures that wait for judgement", self._census.parked)
        yield GaugeMetricFamily("resile_dead_letters", "Items that failed for good", self._census.dead_letters)
        yield GaugeMetricFamily("resile_runs_due", "Runs that wait for a server", self._census.due)
        yield GaugeMetricFamily("resile_event_loop_lag_seconds", "How late the event loop is", self._lag_seconds)
        for name, about in _GAUGES.items():
            yield GaugeMetricFamily(f"resile_{name}", about, self._statistics.get(name, 0))
        for name, (about, label) in _COUNTERS.items():
            yield _counter(name, about, label, self._statistics.get(name))
        commits = HistogramMetricFamily("resile_commit_seconds", "How long commits took")
        commits.add_metric([], buckets=self._commits.buckets(), sum_value=self._commits.sum_seconds)
        yield commits


def _counter(name: str, about: str, label: str, value: Any) -> CounterMetricFamily:
    """A counter, by label where it has one."""
    if not label:
        return CounterMetricFamily(f"resile_{name}", about, value or 0)
    counter = CounterMetricFamily(f"resile_{name}", about, labels=[label])
    for word, count in sorted((value or {}).items()):
        counter.add_metric([word], count)
    return counter


async def exposition(server: ServerContext) -> Response:
    """The metrics of this moment."""
    census = await server.stores.read(lambda connection: connection.tables.census(time.time()))
    host, tally = server.host.statistics, server.tally
    statistics = {
        "slots": server.host.slots,
        "slots_used": host.running,
        "queue_depth": host.waiting,
        "workers": host.workers,
        "runs_driven": host.driven,
        "lease_losses": host.lease_losses,
        "attempts_started": tally.attempts_started,
        "attempts_ended": tally.attempts_ended,
        "rules_fired": tally.rules_fired,
        "recoveries": tally.recoveries,
    }
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(census, statistics, server.loop_lag_seconds, tally.commits))
    return Response(generate_latest(registry), 200, media_type=CONTENT_TYPE_PLAIN_0_0_4)
