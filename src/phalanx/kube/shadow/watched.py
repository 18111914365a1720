"""Watched: one gang, or a pod alone, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from phalanx.kube.gangs.bundle import Bundle
from phalanx.kube.gangs.groups import Family
from phalanx.kube.objects.pod import Pod
from phalanx.workload.job import Job


@dataclass(slots=True, eq=False)
class Watched:
    """`job` is what phalanx would make of it. `arrived_ms` is when its last pod came; `since_ms` since when its wait
    counts, in the section of that number. It has started when all of its pods are bound. One that `was_there` ran when
    its section began, or started in a gap, so that nothing is known of its wait; how one ended that `is_lost` nothing
    tells.
    """

    bundle: Bundle
    family: Family
    job: Job
    section: int
    arrived_ms: int
    since_ms: int
    nodes: dict[str, str] = field(default_factory=dict)
    started_ms: int | None = None
    ended_ms: int | None = None
    has_failed: bool = False
    was_there: bool = False
    is_lost: bool = False

    @property
    def id(self) -> str:
        """The id of its job."""
        return self.job.id

    @property
    def pods(self) -> tuple[Pod, ...]:
        """Its pods, as they came."""
        return self.bundle.pods

    @property
    def runs(self) -> bool:
        """Whether all its pods are bound, and some not over."""
        return self.started_ms is not None and self.ended_ms is None

    @property
    def is_pending(self) -> bool:
        """Whether not all its pods are bound."""
        return self.started_ms is None and self.ended_ms is None

    @property
    def gpus(self) -> int:
        """How many it has."""
        return self.job.gang.gpus_max
