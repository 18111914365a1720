"""Which jobs a job waits for: those that a person named, by their ids, and in an order in which none comes too soon."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import groupby

from phalanx.workload.job import Job

NAMED_MAX = 20
"""Jobs of one name that an error lists, and of a circle."""


class AfterError(ValueError):
    """The job that a job wants to wait for cannot be waited for. `job` is its id, `other` what it calls the other."""

    def __init__(self, job: str, other: str, reason: str) -> None:
        super().__init__(reason)
        self.job = job
        self.other = other


class Circle(AfterError):  # noqa: N818
    """Jobs that wait for one another. `job` is the id of the first of them, `other` of the one it waits for."""

    def __init__(self, job: str, names: list[str], other: str = "") -> None:
        shown = names if len(names) <= NAMED_MAX else [*names[: NAMED_MAX - 1], "…", names[-1]]
        way = " -> ".join(shown)
        itself = f"job {names[0]} waits for itself: {way}"
        among = f"these jobs wait for one another, so that none could ever start: {way}"
        super().__init__(job, other, itself if len(names) == 2 else among)


def bound(jobs: Iterable[Job]) -> list[Job]:
    """Jobs that are submitted together, as given, with the jobs that they name (or arrays) as ids.

    Raises AfterError for a name that several have. A name that no job has is left as it is.
    """
    jobs = list(jobs)
    known = _Known(jobs)
    return [_bound(job, known) if job.after else job for job in jobs]


def by_dependency(jobs: Iterable[Job]) -> list[Job]:
    """Jobs that name one another by ids, each after those that it waits for, else as given. A circle raises Circle."""
    jobs = list(jobs)
    if not any(job.after for job in jobs):
        return jobs
    by_id = {job.id: job for job in jobs}
    if len(by_id) < len(jobs):
        # Which of two is meant cannot be told; that there are two is refused when they are submitted.
        return jobs
    done: dict[str, Job] = {}
    for job in jobs:
        _walk(job, by_id, done)
    return list(done.values())


def check_known(jobs: Iterable[Job]) -> None:
    """Raises AfterError for the first of some jobs that waits for one that is not among them."""
    jobs = list(jobs)
    ids = {job.id: None for job in jobs}
    for job in jobs:
        for dependency in job.after:
            if dependency.job not in ids:
                raise AfterError(
                    job.id, dependency.job, f"job {job.id} waits for job {dependency.job!r}, which does not exist"
                )


def _walk(first: Job, by_id: Mapping[str, Job], done: dict[str, Job]) -> None:
    """Adds a job to those that are done, and before it all that it waits for. Chains may be longer than the stack."""
    way = {first.id: iter(first.after)} if first.id not in done else {}
    while way:
        at = next(reversed(way))
        dependency = next(way[at], None)
        if dependency is None:
            done[at] = by_id[at]
            del way[at]
        elif dependency.job in way:
            ids = list(way)
            circle = [*ids[ids.index(dependency.job) :], dependency.job]
            raise Circle(circle[0], _names([by_id[each] for each in circle]), circle[1])
        elif dependency.job in by_id and dependency.job not in done:
            way[dependency.job] = iter(by_id[dependency.job].after)


def _names(circle: list[Job]) -> list[str]:
    """What people call the jobs of a circle: their names, where these tell them apart."""
    ids = {job.id: job.array_of or job.id for job in circle}
    owners: dict[str, dict[str, None]] = {}
    for job in circle:
        owners.setdefault(job.name, {})[ids[job.id]] = None
    return [job.name if job.name and len(owners[job.name]) == 1 else ids[job.id] for job in circle]


def _submission(job: Job) -> str:
    return job.array_of or job.id


def _bound(job: Job, known: _Known) -> Job:
    after = (
        replace(dependency, job=other)
        for dependency in job.after
        for other in known.ids(dependency.job, job.id) or (dependency.job,)
    )
    return replace(job, after=tuple(after))


class _Known:
    """Submissions by what a person calls them."""

    def __init__(self, jobs: list[Job]) -> None:
        self._ids: dict[str, tuple[str, ...]] = {}
        self._named: dict[str, list[str]] = {}
        for name, group in groupby(jobs, _submission):
            members = tuple(group)
            self._ids |= {job.id: (job.id,) for job in members} | {name: tuple(job.id for job in members)}
            if members[0].name:
                self._named.setdefault(members[0].name, []).append(name)

    def ids(self, ref: str, asker: str) -> tuple[str, ...]:
        """The job of an id, the members of an array, or the one submission of a name, that a job wants to wait for."""
        if ref in self._ids:
            return self._ids[ref]
        named = self._named.get(ref, [])
        if len(named) > 1:
            which = ", ".join(named[:NAMED_MAX])
            raise AfterError(asker, ref, f"several jobs are named {ref!r}: say which of {which}")
        return self._ids[named[0]] if named else ()
