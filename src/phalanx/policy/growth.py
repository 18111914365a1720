"""Growth: how many members each job gets. The minimum of each first, then one at a time."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from phalanx.policy.view import JobView, Usage
from phalanx.workload.gang import Gang, Role, Task
from phalanx.workload.job import Kind

Gain = Callable[[JobView, dict[str, int], str], float]
"""What one more member of a role is worth to a job that has so many of each."""

PERMILLE = 1000


class Growth:
    """Sizes by job and role so far, and what is left of the whole."""

    def __init__(self, whole: Usage) -> None:
        self.whole = whole
        self.left = whole
        self.sizes: dict[str, dict[str, int]] = {}
        self._jobs: list[JobView] = []

    def admit(self, job: JobView) -> bool:
        """Gives a job its minimum, if that is left."""
        gang = job.job.gang
        need = _sum([_times(needs(role), role.replicas_min) for role in gang.roles])
        if not self._take(need):
            return False
        self.sizes[job.job.id] = {role.name: role.replicas_min for role in gang.roles}
        self._jobs.append(job)
        return True

    def divide(self, gain: Gain) -> None:
        """Adds the member that is worth the most for what it takes of its dominant resource, until none is left.

        Members that are worth nothing are not given to any job.
        """
        offers = [offer for job in self._jobs for offer in self._offers(job, gain)]
        heapify(offers)
        jobs = {job.number: job for job in self._jobs}
        while offers:
            _, number, position, count = heappop(offers)
            job = jobs[number]
            role = job.job.gang.roles[position]
            sizes = self.sizes[job.job.id]
            # What was worked out before the job last grew says nothing any more.
            if count != sum(sizes.values()) or not self._take(needs(role)):
                continue
            sizes[role.name] += 1
            for offer in self._offers(job, gain):
                heappush(offers, offer)

    def _offers(self, job: JobView, gain: Gain) -> list[tuple[float, int, int, int]]:
        """What each role could have next: the best first, then the earlier submitted."""
        sizes = self.sizes[job.job.id]
        offers = []
        for position, role in enumerate(job.job.gang.roles):
            if sizes[role.name] < role.replicas_max:
                worth = gain(job, sizes, role.name) / self._share(needs(role))
                if worth > 0:
                    offers.append((-worth, job.number, position, sum(sizes.values())))
        return offers

    def _share(self, need: Usage) -> float:
        """The dominant share of the whole: of what there is none, nothing is counted."""
        shares = [part / whole for part, whole in zip(need, self.whole, strict=True) if whole]
        return max(shares, default=0.0) or 1.0

    def _take(self, need: Usage) -> bool:
        left = Usage(*(have - part for have, part in zip(self.left, need, strict=True)))
        if any(part and whole and rest < 0 for part, whole, rest in zip(need, self.whole, left, strict=True)):
            return False
        self.left = left
        return True


def needs(role: Role) -> Usage:
    """What one member of a role takes."""
    if role.members:
        return _sum([_times(needs(member), member.replicas_min) for member in role.members])
    return _of_task(role.task)


def stays_whatever(job: JobView) -> bool:
    """Whether a job has devices that may not be taken from it: it is counted before all other jobs."""
    return job.has_devices and (not job.job.preemptible or job.job.kind is Kind.SERVICE)


def elastic_roles(gang: Gang) -> tuple[Role, ...]:
    """The roles whose numbers may change."""
    return tuple(role for role in gang.roles if role.replicas_min < role.replicas_max)


def _of_task(task: Task) -> Usage:
    return Usage(PERMILLE * task.gpus, task.cpus_milli, task.memory_mb)


def _times(need: Usage, count: int) -> Usage:
    return Usage(*(count * part for part in need))


def _sum(each: list[Usage]) -> Usage:
    return Usage(*map(sum, zip(*each, strict=True))) if each else Usage()
