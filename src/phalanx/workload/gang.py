"""Gangs: what must start together, in which numbers, and how close."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from phalanx.workload.share import ShareAsk
from phalanx.workload.toleration import Toleration


@dataclass(frozen=True, slots=True)
class Topology:
    """How close the members of a gang must (`required`) and should (`preferred`) be, as names of levels."""

    required: str = ""
    preferred: str = ""


ANYWHERE = Topology()


class Hashed:
    """Remembers its hash: jobs are looked up by what they ask for again and again, and that never changes."""

    __slots__ = ("_hash",)
    _hash: int


@dataclass(frozen=True, slots=True)
class Task(Hashed):
    """What one process tree asks of one node. Requests are booked; limits may exceed them up to the overcommit.

    Its node selector and tolerations are beside those of its job. One that is `divisible` may be given to several
    nodes, GPU by GPU, by a policy that holds waiting for worse.
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
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()

    def __post_init__(self) -> None:
        for name in ("gpus", "cpus_milli", "cpus_limit_milli", "memory_mb", "memory_limit_mb", "nics"):
            _require_count(name, getattr(self, name))
        for tier, size_gb in self.storage_gb:
            _require_count(f"storage_gb of {tier}", size_gb)
        if type(self.gpu_types) is not tuple:
            raise ValueError(f"task: gpu_types must be a tuple of names, got {self.gpu_types!r}")
        for name in ("node_selector", "tolerations"):
            if type(getattr(self, name)) is not tuple:
                raise ValueError(f"task: {name} must be a tuple, got {getattr(self, name)!r}")
        # Written so that NaN, which fails every comparison, is refused too.
        if not isinstance(self.gpu_memory_gb, int | float) or not 0 <= self.gpu_memory_gb < inf:
            raise ValueError(f"task: gpu_memory_gb must be a finite number of at least 0, got {self.gpu_memory_gb!r}")

    def __hash__(self) -> int:
        """Of what mostly tells tasks apart."""
        try:
            return self._hash
        except AttributeError:
            known = (self.gpus, self.gpu_types, self.share, self.cpus_milli, self.memory_mb).__hash__()
            object.__setattr__(self, "_hash", known)
            return known


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

    def __post_init__(self) -> None:
        if type(self.replicas_min) is not int or type(self.replicas_max) is not int:
            raise ValueError(
                f"role {self.name}: replicas must be whole numbers, got {self.replicas_min!r} to {self.replicas_max!r}"
            )

    def __hash__(self) -> int:
        """Likewise, of what mostly tells roles apart."""
        return (self.replicas_max, self.task, self.members).__hash__()

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
class Gang(Hashed):
    """All roles of a job. It starts with at least the minimum of every role, at once, or not at all."""

    roles: tuple[Role, ...]
    topology: Topology = ANYWHERE

    def __hash__(self) -> int:
        """Likewise, by the roles alone."""
        try:
            return self._hash
        except AttributeError:
            known = self.roles.__hash__()
            object.__setattr__(self, "_hash", known)
            return known

    @property
    def gpus_min(self) -> int:
        """GPUs below which the gang does not start."""
        return sum(role.gpus_each * role.replicas_min for role in self.roles)

    @property
    def gpus_max(self) -> int:
        """GPUs the gang can use at most."""
        gpus = 0
        for role in self.roles:
            gpus += (role.gpus_each_max if role.members else role.task.gpus) * role.replicas_max
        return gpus

    @property
    def elastic(self) -> bool:
        """Whether the gang may run with fewer than all its members."""
        return any(map(_elastic, self.roles))


def _require_count(name: str, value: object) -> None:
    # A bool is no count, and 2.0 would be a task that is equal to one of 2 but cannot be placed.
    if type(value) is not int or value < 0:
        raise ValueError(f"task: {name} must be a whole number of at least 0, got {value!r}")


def _elastic(role: Role) -> bool:
    return role.replicas_min < role.replicas_max or any(map(_elastic, role.members))
