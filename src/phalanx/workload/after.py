"""Whom jobs wait for: those that a person named, by their ids."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby

from phalanx.workload.job import Dependency, Job

NAMED_MAX = 20
"""Jobs of one name that an error lists."""


def bound(jobs: Iterable[Job]) -> list[Job]:
    """Jobs that are submitted together, in order, with the others that they name (or arrays) as ids.

    Raises ValueError for a name that several have, and for a job that comes later. What nobody has is left as it is.
    """
    submissions = {name: tuple(members) for name, members in groupby(jobs, _submission)}
    everybody, before, done = _Known(), _Known(), list[Job]()
    for name, members in submissions.items():
        everybody.add(name, members)
    for name, members in submissions.items():
        done += (_bound(job, before, everybody) if job.after else job for job in members)
        before.add(name, members)
    return done


def _submission(job: Job) -> str:
    return job.array_of or job.id


def _bound(job: Job, before: _Known, everybody: _Known) -> Job:
    after: list[Dependency] = []
    for dependency in job.after:
        ids = before.ids(dependency.job)
        if not ids and everybody.ids(dependency.job):
            raise ValueError(f"job {job.id} waits for job {dependency.job!r}, which does not come before it")
        after += [replace(dependency, job=other) for other in ids or (dependency.job,)]
    return replace(job, after=tuple(after))


class _Known:
    """Submissions by what a person calls them."""

    def __init__(self) -> None:
        self._ids: dict[str, tuple[str, ...]] = {}
        self._named: dict[str, list[str]] = {}

    def add(self, name: str, members: tuple[Job, ...]) -> None:
        self._ids |= {job.id: (job.id,) for job in members} | {name: tuple(job.id for job in members)}
        if members[0].name:
            self._named.setdefault(members[0].name, []).append(name)

    def ids(self, ref: str) -> tuple[str, ...]:
        """The job of an id, the members of an array, or the one submission of a name."""
        if ref in self._ids:
            return self._ids[ref]
        named = self._named.get(ref, [])
        if len(named) > 1:
            raise ValueError(f"several jobs are named {ref!r}: say which of {', '.join(named[:NAMED_MAX])}")
        return self._ids[named[0]] if named else ()
