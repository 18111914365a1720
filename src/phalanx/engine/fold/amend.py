"""Amending: a pending job asks for something else from now on, and keeps its place among the submissions. Of an elastic
job that has an attempt, the range of its sizes can be changed; a service that follows its load can have none.
"""

from __future__ import annotations

from dataclasses import replace

from phalanx.engine.fold.ending import want_stopped
from phalanx.engine.fold.enqueue import enqueue, leave
from phalanx.engine.fold.patience import calm, expect
from phalanx.engine.fold.request import take_request
from phalanx.engine.state.elastic import count_of, resizable_roles
from phalanx.engine.state.records import AttemptRecord, JobRecord, StopReason
from phalanx.engine.state.state import State
from phalanx.engine.transaction.suspension import request_of
from phalanx.workload.gang import Gang
from phalanx.workload.job import Job
from phalanx.workload.scale import Scale


def amend(state: State, record: JobRecord, job: Job) -> None:
    """Enqueues a job that has no attempt with its new request; an attempt may have another size from now on."""
    attempt, before = record.attempt, record.job
    if attempt is None and job.queue != before.queue:
        calm(state, record)
        state.know_queue(job.queue)
    record.job = job
    if attempt is None:
        leave(state, record)
        if job.begin_ms is not None and job.begin_ms != before.begin_ms and job.begin_ms > state.now:
            state.set_timer(job.begin_ms, "line_up", job.id)
        expect(state, record)
        take_request(record, request_of(state, record), state.tells_apart)
        enqueue(state, record)
        return
    asked = replace(record.asked, gang=_ranged(record.asked.gang, job.gang))
    attempt.job = replace(attempt.job, gang=_ranged(attempt.job.gang, job.gang))
    # Also an attempt that has not started, or whose range is one size by now, is to come to that size.
    state.elastic[attempt.key] = attempt
    take_request(record, asked, state.tells_apart)
    if job.scale is not None:
        _follow(state, attempt, job.scale)


def _follow(state: State, attempt: AttemptRecord, scale: Scale) -> None:
    """Has a service without load stopped, and one that is wanted again before that go on."""
    if scale.is_at_zero:
        want_stopped(state, attempt, StopReason.SCALED)
    elif state.to_stop.get(attempt.key) is StopReason.SCALED:
        del state.to_stop[attempt.key]


def may_be_resized(state: State, attempt: AttemptRecord, old: Job, new: Job) -> bool:
    """Whether a job with an attempt differs by nothing but how many members its elastic roles may have, and by what
    load it follows.

    It has no fewer than the new minimum already: to wait for more would mean to stop.
    """
    follows = old.scale is not None and new.scale is not None
    if "resize" in state.lacks or not (old.gang.elastic or follows or attempt.key in state.elastic):
        return False
    if replace(new, gang=old.gang, scale=old.scale if follows else new.scale) != old:
        return False
    if _ranged(new.gang, old.gang) != old.gang:
        return False
    resizable = [role.name for role in resizable_roles(new)]
    changed = (after for before, after in zip(old.gang.roles, new.gang.roles, strict=True) if before != after)
    return all(role.name in resizable and count_of(attempt, role) >= role.replicas_min for role in changed)


def _ranged(gang: Gang, other: Gang) -> Gang:
    """A gang with as many members of each role as the role of that name has in another."""
    of = {role.name: role for role in other.roles}
    return replace(
        gang,
        roles=tuple(
            replace(role, replicas_min=of[role.name].replicas_min, replicas_max=of[role.name].replicas_max)
            if role.name in of
            else role
            for role in gang.roles
        ),
    )
