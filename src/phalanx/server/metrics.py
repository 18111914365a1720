"""Metrics for Prometheus: what the store and the loop tell, collected on request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Connection, func, select

from phalanx.server.loop.loop_metrics import BOUNDS_S, Durations, Figures
from phalanx.server.options import Options
from phalanx.server.store import jobs, nodes, settings
from phalanx.server.store.database import Database
from phalanx.server.store.forecasts import OUTCOMES, receipts
from phalanx.server.store.tables import alerts, tokens
from phalanx.server.store.virtual_clusters import virtual_clusters_of
from phalanx.server.view.lists import queue_totals

STATES = ("waiting", "starting", "running", "suspended", "stopping", "succeeded", "failed", "cancelled")
ERROR_BOUNDS_S = (10.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
"""Upper bounds of the classes into which it is counted how far off a start was."""

HEALTHS = ("healthy", "spare", "suspect", "draining", "failed")


class ClusterMetrics(Collector):
    """The cluster, the jobs, the queues and the loop as metrics."""

    def __init__(self, database: Database, options: Options) -> None:
        self._database = database
        self._options = options

    def collect(self) -> Iterator[Metric]:
        """All of them, from one look at the store."""
        with self._database.reading() as connection:
            yield from _of_jobs(connection)
            yield from _of_start_forecasts(connection)
            yield from _of_virtual_clusters(connection)
            yield from _of_nodes(connection)
            yield from _of_accounts(connection)
        yield from _of_loop(figures_of(self._options))


def figures_of(options: Options) -> Figures | None:
    """What the loop last told of itself, if that can be read."""
    try:
        return msgspec.json.decode(options.file("run", "pulse.json").read_bytes(), type=Figures)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError):
        return None


def _of_jobs(connection: Connection) -> Iterator[Metric]:
    totals = jobs.state_totals(connection)
    by_state = GaugeMetricFamily("phalanx_jobs", "Jobs by state.", labels=["state"])
    for state in STATES:
        by_state.add_metric([state], totals.get(state, 0))
    yield by_state
    waiting = GaugeMetricFamily("phalanx_queue_jobs_waiting", "Pending jobs, by queue.", labels=["queue"])
    running = GaugeMetricFamily("phalanx_queue_jobs_running", "Jobs that hold devices, by queue.", labels=["queue"])
    used = GaugeMetricFamily("phalanx_queue_gpus_used", "GPUs that jobs hold, by queue.", labels=["queue"])
    wanted = GaugeMetricFamily("phalanx_queue_gpus_waiting", "GPUs that pending jobs ask for.", labels=["queue"])
    for queue in queue_totals(jobs.counted(connection)):
        waiting.add_metric([queue["name"]], queue["waiting"])
        running.add_metric([queue["name"]], queue["running"])
        used.add_metric([queue["name"]], queue["gpus_used"])
        wanted.add_metric([queue["name"]], queue["gpus_waiting"])
    yield from (waiting, running, used, wanted)


def _of_start_forecasts(connection: Connection) -> Iterator[Metric]:
    """How well the starts that submitters were told came true."""
    counts: Counter[tuple[str, str, str]] = Counter()
    errors: dict[tuple[str, str], Durations] = {}
    for queue, policy, error_ms, outcome in receipts(connection):
        counts[queue, policy, outcome] += 1
        error = errors.setdefault((queue, policy), Durations(classes=[0] * (len(ERROR_BOUNDS_S) + 1)))
        error.add(abs(error_ms) / 1000, ERROR_BOUNDS_S)
    labels = ["queue", "policy"]
    told = CounterMetricFamily(
        "phalanx_start_forecasts", "Starts told at the submission, by how they came.", labels=[*labels, "outcome"]
    )
    for queue, policy in errors:
        for outcome in OUTCOMES:
            told.add_metric([queue, policy, outcome], counts[queue, policy, outcome])
    off = HistogramMetricFamily(
        "phalanx_start_forecast_error_seconds", "Time between the start that was told and the real one.", labels=labels
    )
    for key, durations in errors.items():
        off.add_metric(list(key), _buckets(durations, ERROR_BOUNDS_S), sum_value=durations.total_s)
    yield from (told, off)


def _of_virtual_clusters(connection: Connection) -> Iterator[Metric]:
    label = ["virtual_cluster"]
    owned = GaugeMetricFamily("phalanx_virtual_cluster_gpus", "GPUs that a virtual cluster owns.", labels=label)
    used = GaugeMetricFamily("phalanx_virtual_cluster_gpus_used", "GPUs of its own that its jobs hold.", labels=label)
    beside = GaugeMetricFamily(
        "phalanx_virtual_cluster_gpus_opportunistic", "GPUs that its jobs hold beside its own.", labels=label
    )
    for name, told in virtual_clusters_of(connection).items():
        owned.add_metric([name], told["gpus"])
        used.add_metric([name], told["gpus_used"])
        beside.add_metric([name], told["gpus_opportunistic"])
    yield from (owned, used, beside)


def _of_nodes(connection: Connection) -> Iterator[Metric]:
    cluster = msgspec.json.decode(settings.get(connection, "cluster") or b"{}")
    yield GaugeMetricFamily("phalanx_gpus", "GPUs of the cluster.", value=cluster.get("gpus", 0))
    yield GaugeMetricFamily(
        "phalanx_gpus_used", "GPUs that jobs or work of others hold.", value=nodes.gpus_used(connection)
    )
    totals = nodes.health_totals(connection)
    by_health = GaugeMetricFamily("phalanx_nodes", "Nodes by health.", labels=["health"])
    for health in HEALTHS:
        by_health.add_metric([health], totals.get(health, 0))
    yield by_health


def _of_accounts(connection: Connection) -> Iterator[Metric]:
    live = connection.execute(select(func.count()).where(tokens.c.revoked_ms.is_(None))).scalar() or 0
    yield GaugeMetricFamily("phalanx_tokens", "Tokens that are not revoked.", value=live)
    firing = GaugeMetricFamily("phalanx_alerts_firing", "Alerts that fire, by rule.", labels=["rule"])
    for rule, count in connection.execute(select(alerts.c.rule, func.count()).group_by(alerts.c.rule)):
        firing.add_metric([rule], count)
    yield firing


def _of_loop(figures: Figures | None) -> Iterator[Metric]:
    if figures is None:
        return
    yield GaugeMetricFamily(
        "phalanx_loop_started_seconds", "When the loop was started.", value=figures.started_ms / 1e3
    )
    yield GaugeMetricFamily("phalanx_journal_seq", "The newest record of the journal.", value=figures.seq)
    yield GaugeMetricFamily(
        "phalanx_jobs_in_line", "Jobs that could start if there was room.", value=figures.jobs_in_line
    )
    yield GaugeMetricFamily("phalanx_gpus_in_line", "GPUs that jobs in line ask for.", value=figures.gpus_in_line)
    yield GaugeMetricFamily("phalanx_attempts", "Attempts that hold devices or a claim.", value=figures.attempts)
    yield CounterMetricFamily("phalanx_loop_requests", "Mutations that the loop was asked for.", value=figures.requests)
    yield CounterMetricFamily("phalanx_loop_events", "Events that the backend reported.", value=figures.events)
    yield CounterMetricFamily(
        "phalanx_advice_kept", "Times that the policy's solver had no answer.", value=figures.advice_kept
    )
    yield _histogram("phalanx_loop_turn_seconds", "Time of a turn of the loop.", figures.turns)
    yield _histogram("phalanx_loop_commit_seconds", "Time until events were durable.", figures.commits)
    yield _histogram("phalanx_loop_decision_seconds", "Time of a decision.", figures.decisions)


def _histogram(name: str, help_text: str, durations: Durations) -> Metric:
    return HistogramMetricFamily(name, help_text, buckets=_buckets(durations, BOUNDS_S), sum_value=durations.total_s)


def _buckets(durations: Durations, bounds_s: Sequence[float]) -> list[tuple[str, float]]:
    buckets: list[tuple[str, float]] = []
    total = 0
    for bound, count in zip((*map(str, bounds_s), "+Inf"), durations.classes, strict=True):
        total += count
        buckets.append((bound, total))
    return buckets
