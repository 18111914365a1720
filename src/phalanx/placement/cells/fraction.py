"""Fractions of a leaf inside a virtual cluster: jobs that share a leaf which the cluster holds once.

To the cells a shared leaf is a group of one leaf. Who is on it, and with how many thousandths, is kept here; the
guarantee does not change, since the leaf is held like any other.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from phalanx.placement.cells.cells import Cells
from phalanx.placement.cells.request import Member, Outcome, Request
from phalanx.workload.cells import CellError

WHOLE_PERMILLE = 1000


@dataclass(slots=True)
class _Shared:
    """One leaf and the thousandths of it that each job has."""

    request: Request
    jobs: dict[str, int] = field(default_factory=dict)

    @property
    def free_permille(self) -> int:
        return WHOLE_PERMILLE - sum(self.jobs.values())


class Fractions:
    """Jobs that ask for less than a leaf. Jobs of one cluster, priority and type share leaves, the fullest first."""

    def __init__(self, cells: Cells) -> None:
        self.cells = cells
        self._shared: dict[str, _Shared] = {}
        self._of_job: dict[str, str] = {}
        self._number = 0

    def schedule(self, job: str, request: Request, permille: int) -> Outcome:
        """Puts a job on a leaf that has room for it, or on a new one. `request` says whose and at which priority."""
        if not 0 < permille <= WHOLE_PERMILLE:
            raise CellError(f"job '{job}': expected 1 to {WHOLE_PERMILLE} thousandths of a leaf, got {permille}")
        if job in self._of_job:
            raise CellError(f"job '{job}' has a share already")
        name = self._fullest(request, permille)
        if name is not None:
            self._shared[name].jobs[job] = permille
            self._of_job[job] = name
            return Outcome(self.cells.group(name))
        return self._open(job, request, permille)

    def remove(self, job: str) -> None:
        """A job has gone; with the last one its leaf goes back."""
        name = self._of_job.pop(job)
        shared = self._shared[name]
        del shared.jobs[job]
        if not shared.jobs:
            del self._shared[name]
            self.cells.remove(name)

    def jobs_on(self, group: str) -> tuple[str, ...]:
        """The jobs that share a leaf: the victims, when it is preempted."""
        return tuple(self._shared[group].jobs) if group in self._shared else ()

    def _open(self, job: str, request: Request, permille: int) -> Outcome:
        self._number += 1
        leaf = Request(
            f"shared/{request.virtual_cluster}/{self._number}",
            request.virtual_cluster,
            (Member(1, 1),),
            request.priority,
            request.leaf_type,
            request.pinned_id,
            request.lazy_preemption,
        )
        outcome = self.cells.schedule(leaf)
        if outcome.group is not None:
            self._shared[leaf.group] = _Shared(leaf, {job: permille})
            self._of_job[job] = leaf.group
        return outcome

    def _fullest(self, request: Request, permille: int) -> str | None:
        fitting = [
            (shared.free_permille, name)
            for name, shared in self._shared.items()
            if shared.free_permille >= permille and _is_alike(shared.request, request) and self.cells.has(name)
        ]
        return min(fitting)[1] if fitting else None


def _is_alike(leaf: Request, asked: Request) -> bool:
    return (leaf.virtual_cluster, leaf.priority, leaf.pinned_id) == (
        asked.virtual_cluster,
        asked.priority,
        asked.pinned_id,
    ) and asked.leaf_type in ("", leaf.leaf_type)
