"""Maintenance: nodes that are to be empty at a time known beforehand.

Who says how long it runs is not placed where it would not have left by then. Who does not say, and may be stopped, may
run there until then. What still runs when the time comes is stopped with notice, and goes on elsewhere or afterwards.
"""

from __future__ import annotations

from phalanx.cluster.cluster import Health
from phalanx.cluster.maintenance import Maintenance
from phalanx.engine import attempts
from phalanx.engine.records import FOREVER_MS, JobRecord, StopReason, estimate_ms
from phalanx.engine.state import State
from phalanx.workload.job import Job, Kind


def set_out(state: State) -> None:
    """Has the nodes close and open at their times, from now on."""
    for window in state.cluster.maintenance:
        for at_ms in (window.start_ms, window.end_ms):
            if at_ms > state.now:
                state.set_timer(at_ms, "maintenance", "")
    keep(state, state.now)


def is_edge(state: State, at_ms: int) -> bool:
    """Whether nodes close or open at a moment."""
    return any(at_ms in (window.start_ms, window.end_ms) for window in state.cluster.maintenance)


def keep(state: State, at_ms: int) -> None:
    """Closes the nodes whose time has come, and opens those whose time is over, at an edge that is due."""
    due = open_again(state)
    for window in state.cluster.maintenance:
        if window.end_ms == at_ms:
            # Who was kept off has another try, also where nobody was awake to close the nodes meanwhile.
            for name in window.nodes:
                state.capacity.grown |= state.topology.bit[state.topology.number[name]]
    for name in due:
        if name not in state.closed:
            _close(state, name)


def open_again(state: State) -> dict[str, None]:
    """Opens the nodes that are closed and need not be; those that are to be closed now."""
    due = dict.fromkeys(node for window in under_way(state) for node in window.nodes)
    for name in [name for name in state.closed if name not in due]:
        state.capacity.set_health(state.topology.number[name], state.closed.pop(name))
        state.surprised = True
    return due


def under_way(state: State) -> list[Maintenance]:
    """The maintenance that takes place now."""
    return [window for window in state.cluster.maintenance if window.start_ms <= state.now < window.end_ms]


def _close(state: State, name: str) -> None:
    node = state.topology.number[name]
    state.closed[name] = state.capacity.health[node]
    if state.capacity.health[node] is not Health.FAILED:
        state.capacity.set_health(node, Health.DRAINING)
    state.surprised = True
    for attempt in list(state.on_node.get(node, {}).values()):
        attempts.want_stopped(state, attempt, StopReason.MAINTENANCE)


def reopen(state: State) -> None:
    """Has every node be as healthy as it would be without maintenance."""
    for name, health in state.closed.items():
        state.capacity.set_health(state.topology.number[name], health)
    state.closed.clear()


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

    Who does not say how long it runs may run until the nodes are closed, if it may be stopped. The lengths of a class
    are in order, so that one without a length is the last.
    """
    waiting = state.classes.get(record.shape)
    # Who lost a claim stands in line by itself until the decision is applied.
    lengths_ms = waiting.lengths_ms if waiting is not None else []
    if _stops_in_time(record.job) and lengths_ms and lengths_ms[-1] >= FOREVER_MS:
        return FOREVER_MS
    return max((window.start_ms for window in too_soon(state, record)), default=state.now) - state.now


def _length_ms(record: JobRecord) -> int:
    # What a job's like have run is known only once it stands in line.
    length_ms = min(record.estimate_ms, estimate_ms(record.job))
    return 0 if length_ms >= FOREVER_MS and _stops_in_time(record.job) else length_ms


def _stops_in_time(job: Job) -> bool:
    """Whether a job can be stopped when the time comes."""
    return job.preemptible and job.kind is not Kind.SERVICE
