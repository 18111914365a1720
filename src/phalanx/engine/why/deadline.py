"""Deadlines: what can be said of one when its job is submitted, by its shape and by counting GPU time.

A pending job must be able to start in time (`earliest`). By its deadline a job's own work must be done, and that of all
jobs whose deadlines come first. If these together need more GPU time than there is until then, one of them will be late
whatever the order (the processor demand of Baruah, Rosier and Howell, Real-Time Systems 1990). Earliest deadline first
sees to it that it is the last. Pending jobs are not placed here: that there are a place and time enough is needed, and
does not suffice. What is unknown (a length that is not said, a node that is down) is taken for the better.
"""

from __future__ import annotations

from typing import NamedTuple

from phalanx.engine.state.records import JobRecord
from phalanx.engine.state.state import State
from phalanx.engine.why.earliest import CHAIN_MAX, Earliest, alone, closes_ms, earliest
from phalanx.engine.why.evidence import beyond_quota
from phalanx.placement.place import ever
from phalanx.policy.edf import last_moment_ms
from phalanx.policy.policy import Targets
from phalanx.protocol.reason import Reason


class Outlook(NamedTuple):
    """Whether a deadline can be met, and the GPU time behind that.

    `start_by_ms` is the last moment at which the job can start; `needed_gpu_ms` what it and all jobs that are due
    before it need by its deadline, `available_gpu_ms` what there is until then. `endangers` are jobs that could be on
    time without it, and with it cannot. `earliest_ms` is when it can start at the earliest by what is known of what it
    waits for, and `obstacle` what keeps it until then. `earliest_ms` is None if that is not known, or the job has its
    devices, or an obstacle is there to stay. `ends_ms` is when one that has its devices has done its work. Of a job
    that does not say how long it takes (`length_known`), nothing more is known than that.
    """

    start_by_ms: int
    needed_gpu_ms: int
    available_gpu_ms: int
    endangers: tuple[str, ...]
    can_be_met: bool
    earliest_ms: int | None = None
    length_known: bool = True
    obstacle: Reason | None = None
    ends_ms: int | None = None


class Due(NamedTuple):
    """Work with a deadline, in the order in which it is due."""

    deadline_ms: int
    submitted_ms: int
    number: int
    job: str
    gpu_ms: int


def outlook(state: State, record: JobRecord) -> Outlook | None:
    """What can be said of a job's deadline now; None if it has none, or has ended."""
    if record.job.deadline_ms is None or record.final is not None:
        return None
    mine = _due(state, record, record.job.deadline_ms)
    starts = _Starts(state)
    others = [
        _due(state, other, other.job.deadline_ms)
        for other in state.jobs.values()
        if other is not record and other.final is None and other.job.deadline_ms is not None and starts.can(other)
    ]
    alone_at = alone(state, [state.jobs[due.job] for due in others])
    in_time = [due for due in others if _has_time(state, due, alone_at[due.job])]
    without, with_it = _on_time(state, in_time), _on_time(state, [*in_time, mine])
    start_by_ms = last_moment_ms(record, record.job.deadline_ms, state.now)
    needed = sum(due.gpu_ms for due in without.values() if due < mine) + mine.gpu_ms
    start = earliest(state, record)
    starts_in_time = not start.never and (state.now if start.at_ms is None else start.at_ms) <= start_by_ms
    return Outlook(
        start_by_ms,
        needed,
        _available_gpu_ms(state, mine.deadline_ms),
        tuple(job for job in without if job not in with_it),
        starts_in_time and mine.job in with_it,
        start.at_ms,
        record.job.duration_ms is not None,
        start.obstacle,
        state.now + _left_ms(state, record) if record.attempt is not None else None,
    )


class _Starts:
    """Which jobs can start as things stand: a job that cannot takes no GPU time from other jobs.

    A job cannot start that is held, fits nowhere, asks for more than its queue could ever have or has budget for, or
    waits for such a job.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._known: dict[str, bool] = {}

    def can(self, record: JobRecord, further: int = CHAIN_MAX) -> bool:
        """Whether a job that has not ended can start, or has started."""
        known = self._known.get(record.job.id)
        if known is None:
            known = record.attempt is not None or (self._alone(record) and self._after_others(record, further))
            self._known[record.job.id] = known
        return known

    def _alone(self, record: JobRecord) -> bool:
        state = self._state
        if record.held or not ever(state.fit, record.asked):
            return False
        if not state.quotas:
            return True
        short = state.shortfall(record)
        return beyond_quota(state.quotas, record) is None and not (short is not None and short.by_budget)

    def _after_others(self, record: JobRecord, further: int) -> bool:
        """Whether all jobs that it waits for can start; how those ended that are over is looked at elsewhere."""
        others = (self._state.jobs[each.job] for each in record.job.after if further)
        return all(self.can(other, further - 1) for other in others if other.final is None)


def _due(state: State, record: JobRecord, deadline_ms: int) -> Due:
    gpus = record.attempt.gpus if record.attempt is not None else record.gpus_min
    return Due(deadline_ms, record.submitted_ms, record.number, record.job.id, gpus * _left_ms(state, record))


def _left_ms(state: State, record: JobRecord) -> int:
    return max((record.job.duration_ms or 0) - record.executed_ms(state.now), 0)


def _has_time(state: State, due: Due, start: Earliest) -> bool:
    """Whether a job would be on time if it ran alone as soon as it may: one that would not yields to all the rest."""
    by_ms = last_moment_ms(state.jobs[due.job], due.deadline_ms, state.now)
    return not start.never and (start.at_ms or state.now) <= by_ms


def _on_time(state: State, dues: list[Due]) -> dict[str, Due]:
    """The jobs that have time enough, the earliest deadline first; one without enough leaves its time to the rest."""
    found: dict[str, Due] = {}
    needed = 0
    for due in sorted(dues):
        if needed + due.gpu_ms <= _available_gpu_ms(state, due.deadline_ms):
            needed += due.gpu_ms
            found[due.job] = due
    return found


def _available_gpu_ms(state: State, deadline_ms: int) -> int:
    """GPU time up to a deadline, but for maintenance and for what jobs that are due later hold until they end."""
    window_ms = max(deadline_ms - state.now, 0)
    held = 0
    for attempt in state.attempts_present():
        record = state.jobs[attempt.job.id]
        due_later = record.job.deadline_ms is None or record.job.deadline_ms > deadline_ms
        stays = state.policy.targets is Targets.KEEP or not attempt.stoppable
        if due_later and stays:
            end_ms = min(state.now + _left_ms(state, record), deadline_ms)
            held += attempt.gpus * max(closes_ms(state, attempt, end_ms) - state.now, 0)
    return state.total.gpu_permille // 1000 * window_ms - held - _closed_gpu_ms(state, deadline_ms)


def _closed_gpu_ms(state: State, until_ms: int) -> int:
    """GPU time of nodes while they are closed for maintenance, each moment once."""
    closed = 0
    counted_ms: dict[str, int] = {}
    for window in sorted(state.cluster.maintenance, key=lambda each: each.start_ms):
        for name in window.nodes:
            since_ms = max(window.start_ms, counted_ms.get(name, state.now))
            end_ms = min(window.end_ms, until_ms)
            if since_ms < end_ms:
                closed += state.topology.nodes[state.topology.number[name]].gpus * (end_ms - since_ms)
                counted_ms[name] = end_ms
    return closed
