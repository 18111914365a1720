"""Deadlines: what can be said of one when its job is submitted, by its shape and by counting GPU time.

Before it can start, as much as it needs must be free where it needs it: the earliest such moment is found by letting
those who hold devices leave one after the other, as they are expected to. By its deadline a job's own work must be
done, and that of all whose deadlines come first. If these together need more GPU time than there is until then, one of
them will be late whatever the order (the processor demand of Baruah, Rosier and Howell, Real-Time Systems 1990), and
earliest deadline first sees to it that it is the last. Those who wait are not placed here: that there are a place and
time enough is needed, and does not suffice. What nobody knows (a length that is not said, a node that is down) is taken
for the better.
"""

from __future__ import annotations

from typing import NamedTuple

from phalanx.engine.evidence import expected_end_ms, would_yield
from phalanx.engine.records import AttemptRecord, JobRecord, Phase
from phalanx.engine.state import State
from phalanx.engine.trial import Trial
from phalanx.placement.place import ever
from phalanx.policy.edf import last_moment_ms
from phalanx.policy.policy import Targets


class Outlook(NamedTuple):
    """Whether a deadline can be met, and the GPU time behind that.

    `start_by_ms` is the last moment at which the job can start; `needed_gpu_ms` what it and all who are due before it
    need by its deadline, `available_gpu_ms` what there is until then. `endangers` are others who could be on time
    without it, and with it cannot. `earliest_ms` is when what it needs is free together by what is known of those who
    hold it; None if that is not known, or it has it already. Of a job that does not say how long it takes
    (`length_known`), nothing more is known than that.
    """

    start_by_ms: int
    needed_gpu_ms: int
    available_gpu_ms: int
    endangers: tuple[str, ...]
    can_be_met: bool
    earliest_ms: int | None = None
    length_known: bool = True


class Due(NamedTuple):
    """Work with a deadline, in the order in which it is due."""

    deadline_ms: int
    submitted_ms: int
    number: int
    job: str
    gpu_ms: int


def outlook(state: State, record: JobRecord) -> Outlook | None:
    """What can be said of a job's deadline now; None if it has none."""
    if record.job.deadline_ms is None:
        return None
    mine = _due(state, record, record.job.deadline_ms)
    others = [
        _due(state, other, other.job.deadline_ms)
        for other in state.jobs.values()
        if other is not record and other.final is None and other.job.deadline_ms is not None
    ]
    in_time = [due for due in others if _has_time(state, due)]
    without, with_it = _on_time(state, in_time), _on_time(state, [*in_time, mine])
    start_by_ms = last_moment_ms(record, record.job.deadline_ms, state.now)
    needed = sum(due.gpu_ms for due in without.values() if due < mine) + mine.gpu_ms
    earliest_ms = _earliest_ms(state, record) if record.attempt is None else None
    in_time_ms = state.now if earliest_ms is None else earliest_ms
    return Outlook(
        start_by_ms,
        needed,
        _available_gpu_ms(state, mine.deadline_ms),
        tuple(job for job in without if job not in with_it),
        in_time_ms <= start_by_ms and mine.job in with_it and ever(state.fit, record.asked),
        earliest_ms,
        record.job.duration_ms is not None,
    )


def _earliest_ms(state: State, record: JobRecord) -> int | None:
    """When a job finds a place, if those who hold devices leave as expected; None if not even then."""
    with Trial(state) as trial:
        leaving: list[tuple[int, AttemptRecord]] = []
        for attempt in state.attempts_present():
            end_ms = _leaves_ms(state, record, attempt)
            if end_ms > state.now:
                leaving.append((end_ms, attempt))
            else:
                _release(trial, attempt)
        leaving.sort(key=lambda each: each[0])
        mark = trial.mark()

        def fits(count: int) -> bool:
            for _, attempt in leaving[:count]:
                _release(trial, attempt)
            seated = trial.seat_at_last(record) is not None
            trial.undo_to(mark)
            return seated

        if fits(0):
            return state.now
        too_few, enough = 0, len(leaving)
        if not leaving or not fits(enough):
            return None
        while enough - too_few > 1:
            middle = (too_few + enough) // 2
            too_few, enough = (too_few, middle) if fits(middle) else (middle, enough)
        return leaving[enough - 1][0]


def _leaves_ms(state: State, record: JobRecord, attempt: AttemptRecord) -> int:
    """When somebody leaves to a job what it holds: at once who would give way, or of whose end nothing is known."""
    if attempt.ceding or (attempt.stoppable and would_yield(state, record, attempt)):
        return state.now
    return expected_end_ms(state, attempt) or state.now


def _release(trial: Trial, attempt: AttemptRecord) -> None:
    if attempt.waits:
        trial.unclaim(attempt.bookings)
    elif attempt.phase is Phase.STOPPING:
        trial.vacate(attempt.bookings)
    else:
        trial.release(attempt.bookings)
    trial.leave_cells(attempt)


def _due(state: State, record: JobRecord, deadline_ms: int) -> Due:
    left_ms = max((record.job.duration_ms or 0) - record.executed_ms(state.now), 0)
    gpus = record.attempt.gpus if record.attempt is not None else record.gpus_min
    return Due(deadline_ms, record.submitted_ms, record.number, record.job.id, gpus * left_ms)


def _has_time(state: State, due: Due) -> bool:
    """Whether a job would be on time if it ran alone from now on: who would not gives way to all others."""
    return state.now <= last_moment_ms(state.jobs[due.job], due.deadline_ms, state.now)


def _on_time(state: State, dues: list[Due]) -> dict[str, Due]:
    """Those for whom there is time enough, the earliest deadline first; who finds none left leaves his to the rest."""
    found: dict[str, Due] = {}
    needed = 0
    for due in sorted(dues):
        if needed + due.gpu_ms <= _available_gpu_ms(state, due.deadline_ms):
            needed += due.gpu_ms
            found[due.job] = due
    return found


def _available_gpu_ms(state: State, deadline_ms: int) -> int:
    """GPU time up to a deadline, but for what those hold until they end who are due later, or never."""
    window_ms = max(deadline_ms - state.now, 0)
    held = 0
    for attempt in state.attempts_present():
        record = state.jobs[attempt.job.id]
        due_later = record.job.deadline_ms is None or record.job.deadline_ms > deadline_ms
        stays = state.policy.targets is Targets.KEEP or not attempt.stoppable
        if due_later and stays:
            left_ms = max((record.job.duration_ms or 0) - record.executed_ms(state.now), 0)
            held += attempt.gpus * min(left_ms, window_ms)
    return state.total.gpu_permille // 1000 * window_ms - held
