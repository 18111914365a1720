"""Amending: a waiting job asks for something else from now on, and keeps its place among the submissions."""

from __future__ import annotations

from phalanx.engine.records import JobRecord, gpus_needed, need_of, shape_of, tasks_of
from phalanx.engine.state import State
from phalanx.engine.waiting import leave, line_up
from phalanx.workload.job import Job


def amend(state: State, record: JobRecord, job: Job) -> None:
    """Puts a job that has no attempt in line as what it asks for now."""
    leave(state, record)
    record.job = record.asked = job
    record.tasks = tasks_of(job.gang.roles)
    record.gpus_min = gpus_needed(job.gang, record.tasks)
    record.need = need_of(job.gang.roles)
    record.shape = shape_of(job, state.minds_queues)
    line_up(state, record)
