"""Whether a job meets its deadline, and what keeps it from that."""

from __future__ import annotations

from collections.abc import Container

from phalanx.engine.state.records import JobRecord, JobState
from phalanx.engine.state.state import State
from phalanx.engine.why.deadline import Outlook, outlook
from phalanx.protocol.reason import Reason
from phalanx.words.others import Everything, a_job_of
from phalanx.words.phrases import gpu_time, how_long

OBSTACLE_WORDS = {
    Reason.BEGIN_TIME: "its begin time comes in {}",
    Reason.BACKOFF: "it is tried again in {}",
    Reason.DEPENDENCY: "what it waits for takes {}",
    Reason.MAINTENANCE: "nodes it needs are closed for maintenance, and it finds a place in {}",
    Reason.QUOTA: "its queue may have so much in {} at the earliest",
    Reason.GPUS: "what it needs is free together in {} at the earliest",
}
"""What keeps a job from starting, and for how long."""

LASTING_WORDS = {
    Reason.NEVER_FITS: "no part of this cluster could ever hold it",
    Reason.DEPENDENCY_FAILED: "an outcome it waits for did not come",
    Reason.QUOTA: "its queue may never have so much",
    Reason.BUDGET: "the budget of its queue is used up before it can start",
}
"""What keeps a job from ever starting, as things stand."""


def deadline_words(state: State, job: str, visible_queues: Container[str] = Everything()) -> str:
    """Whether a job can meet its deadline, by its shape and the GPU time there is; empty if it has none.

    Of the jobs of other queues than the visible ones, only the queue is told.
    """
    record = state.record(job)
    if record.final is not None:
        return _deadline_past(record)
    found = outlook(state, record)
    if found is None:
        return ""
    if not found.length_known:
        return f"job {job} does not say how long it takes (duration): whether it meets its deadline is unknown"
    if not found.can_be_met:
        return f"job {job} cannot meet its deadline: {_in_the_way(state, job, found)}"
    endangered = (state.jobs[other].job for other in found.endangers)
    known = [f"job {each.id}" if each.queue in visible_queues else a_job_of(each.queue) for each in endangered]
    late = f", but then {', '.join(known)} cannot" if known else ""
    if found.ends_ms is not None:
        spare = how_long(record.job.deadline_ms, found.ends_ms)
        ends = how_long(found.ends_ms, state.now)
        return f"job {job} meets its deadline if it takes as long as it says: it ends in {ends}, {spare} early{late}"
    held = "is released and " if record.held else ""
    later = f", and it can start in {how_long(found.earliest_ms, state.now)} at the earliest" if found.obstacle else ""
    within = f"if it {held}starts within {how_long(found.start_by_ms, state.now)}{later}"
    return f"job {job} can meet its deadline {within} ({_gpu_hours_until(found)}){late}"


def _deadline_past(record: JobRecord) -> str:
    """What became of the deadline of a job that has ended."""
    deadline_ms, ended_ms = record.job.deadline_ms, record.ended_ms
    if deadline_ms is None or ended_ms is None or record.final is not JobState.SUCCEEDED:
        return ""
    if ended_ms <= deadline_ms:
        return f"job {record.job.id} met its deadline, {how_long(deadline_ms, ended_ms)} early"
    return f"job {record.job.id} missed its deadline by {how_long(ended_ms, deadline_ms)}"


def _in_the_way(state: State, job: str, found: Outlook) -> str:
    """What keeps a job from meeting its deadline."""
    deadline_ms = state.jobs[job].job.deadline_ms or 0
    if found.ends_ms is not None and found.ends_ms > deadline_ms:
        return f"if it takes as long as it says, it ends {how_long(found.ends_ms, deadline_ms)} late"
    if found.start_by_ms < state.now:
        return f"even if it started now it would end {how_long(state.now, found.start_by_ms)} late"
    if found.earliest_ms is None and found.obstacle is not None:
        return LASTING_WORDS[found.obstacle]
    if found.obstacle is not None and (found.earliest_ms or 0) > found.start_by_ms:
        until = OBSTACLE_WORDS[found.obstacle].format(how_long(found.earliest_ms, state.now))
        return f"{until}, and it would have to start within {how_long(found.start_by_ms, state.now)}"
    return f"it and those due before it need {_gpu_hours_until(found)}"


def _gpu_hours_until(found: Outlook) -> str:
    (needed, available), unit = gpu_time(found.needed_gpu_ms, found.available_gpu_ms)
    return f"{needed} of {available} {unit} until then"
