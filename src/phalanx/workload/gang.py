"""Gangs: what must start together, in which numbers, and how close."""

from __future__ import annotations

from dataclasses import dataclass, field

from phalanx.workload.share import ShareAsk


@dataclass(frozen=True, slots=True)
class Topology:
    """How close the members of a gang must (`required`) and should (`preferred`) be, as names of levels."""

    required: str = ""
    preferred: str = ""


ANYWHERE = Topology()


@dataclass(frozen=True, slots=True)
class Task:
    """What one process tree asks of one node. Requests are booked; limits may exceed them up to the overcommit.

    One that is `divisible` may be given to several nodes, GPU by GPU, by a policy that holds waiting for worse.
    """

    gpus: int = 0
    gpu_types: tuple[str, ...] = ()
    gpu_memory_gb: float = 0.0
    share: ShareAsk | None = None
    cpus_milli: int = 0
    cpus_limit_milli: int = 0
    memory_mb: int = 0
    memory_limit_mb: int = 0
    nics: int = 0
    storage_gb: tuple[tuple[str, int], ...] = ()
    divisible: bool = False


@dataclass(frozen=True, slots=True)
class Role:
    """A member of a gang, `replicas_min` to `replicas_max` times: either one task, or a gang of its own.

    The topology holds for each replica on its own, so "16 replicas, each 4 whole nodes in one rack" is a role
    with 16 replicas, `required: rack`, and members of 4 tasks.
    """

    name: str = "worker"
    replicas_min: int = 1
    replicas_max: int = 1
    task: Task = field(default_factory=Task)
    members: tuple[Role, ...] = ()
    topology: Topology = ANYWHERE

    @property
    def gpus_each(self) -> int:
        """GPUs of one replica at its smallest."""
        if self.members:
            return sum(member.gpus_each * member.replicas_min for member in self.members)
        return self.task.gpus

    @property
    def gpus_each_max(self) -> int:
        """GPUs of one replica at its largest."""
        if self.members:
            return sum(member.gpus_each_max * member.replicas_max for member in self.members)
        return self.task.gpus


@dataclass(frozen=True, slots=True)
class Gang:
    """All roles of a job. It starts with at least the minimum of every role, at once, or not at all."""

    roles: tuple[Role, ...]
    topology: Topology = ANYWHERE

    @property
    def gpus_min(self) -> int:
        """GPUs below which the gang does not start."""
        return sum(role.gpus_each * role.replicas_min for role in self.roles)

    @property
    def gpus_max(self) -> int:
        """GPUs the gang can use at most."""
        return sum(role.gpus_each_max * role.replicas_max for role in self.roles)

    @property
    def elastic(self) -> bool:
        """Whether the gang may run with fewer than all its members."""
        return any(_elastic(role) for role in self.roles)


def _elastic(role: Role) -> bool:
    return role.replicas_min < role.replicas_max or any(_elastic(member) for member in role.members)
