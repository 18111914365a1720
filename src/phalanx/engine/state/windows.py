"""Maintenance windows ahead: what a job that starts at a moment would run into."""

from __future__ import annotations

from phalanx.cluster.cluster import Health
from phalanx.cluster.maintenance import Maintenance
from phalanx.engine.state.records import FOREVER_MS, JobRecord, estimate_ms
from phalanx.engine.state.state import State
from phalanx.workload.job import Job, Kind


def under_way(state: State) -> list[Maintenance]:
    """The maintenance that takes place now."""
    return [window for window in state.cluster.maintenance if window.start_ms <= state.now < window.end_ms]


def too_soon(state: State, record: JobRecord, at_ms: int | None = None) -> list[Maintenance]:
    """What a job that starts now, or at a moment, would run into."""
    since_ms = state.now if at_ms is None else at_ms
    until_ms = since_ms + _length_ms(record)
    return [window for window in state.cluster.maintenance if since_ms < window.end_ms and window.start_ms < until_ms]


def closing(state: State, record: JobRecord, at_ms: int) -> list[int]:
    """The open nodes that a job which starts at a moment would not have left when their time comes."""
    found: dict[int, None] = {}
    for window in too_soon(state, record, at_ms):
        for name in window.nodes:
            node = state.topology.number[name]
            if state.capacity.health[node] is Health.HEALTHY:
                found[node] = None
    return list(found)


def spare_ms(state: State, record: JobRecord) -> int:
    """How long another job of its class may run to be kept off fewer nodes than this one.

    A job that does not say how long it runs may run until the nodes are closed, if it may be stopped. The lengths of a
    class are in order, so that one without a length is the last.
    """
    waiting = state.classes.get(record.shape)
    # A job that lost a claim is pending by itself until the decision is applied.
    lengths_ms = waiting.lengths_ms if waiting is not None else []
    if _stops_in_time(record.job) and lengths_ms and lengths_ms[-1] >= FOREVER_MS:
        return FOREVER_MS
    return max((window.start_ms for window in too_soon(state, record)), default=state.now) - state.now


def _length_ms(record: JobRecord) -> int:
    # What a job's like have run is known only once it is enqueued.
    length_ms = min(record.estimate_ms, estimate_ms(record.job))
    return 0 if length_ms >= FOREVER_MS and _stops_in_time(record.job) else length_ms


def _stops_in_time(job: Job) -> bool:
    """Whether a job can be stopped when the time comes."""
    return job.preemptible and job.kind is not Kind.SERVICE
