"""Jobs that are submitted get their ids; those that wait for one beside them, which has none yet, are told apart."""

from __future__ import annotations

from dataclasses import fields, replace
from operator import attrgetter

from phalanx.workload.job import Job

_FIELDS = [each.name for each in fields(Job)]
_VALUES = attrgetter(*_FIELDS)
_ID, _NAME = _FIELDS.index("id"), _FIELDS.index("name")


def numbered(kind: Job, number: int, name: str) -> Job:
    """A job of a kind, with its id and its name: what `replace` of dataclasses does, five times as fast."""
    values = list(_VALUES(kind))
    values[_ID], values[_NAME] = str(number), name
    return Job(*values)


def names_others(job: Job) -> bool:
    """Whether it waits for a job that is submitted beside it: only these have no ids yet."""
    return any(not is_number(dependency.job) for dependency in job.after)


def apart(job: Job) -> Job:
    """A job as it is without those that are submitted beside it."""
    return replace(job, after=tuple(each for each in job.after if is_number(each.job))) if job.after else job


def is_number(job: str) -> bool:
    """Whether it is named by its id, and not by a name in the same request."""
    return job.partition(".")[0].isdecimal()
