"""Requests: what a job is placed by, which may differ from what it was submitted with."""

from __future__ import annotations

from phalanx.engine.state.records import JobRecord, gpus_needed, need_of, shape_of, tasks_of
from phalanx.policy.policy import Minds
from phalanx.workload.job import Job


def take_request(record: JobRecord, asked: Job, minds: Minds) -> None:
    """Has a job that is not enqueued be placed by another request, with all that follows from it."""
    record.asked = asked
    record.tasks = tasks_of(asked.gang.roles)
    record.gpus_min = gpus_needed(asked.gang, record.tasks)
    record.need = need_of(asked.gang.roles)
    record.shape = shape_of(asked, minds)
