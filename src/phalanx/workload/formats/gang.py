"""The gang of a job file: roles, their replicas, and what each task asks of its node."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from phalanx.cluster.cluster import CLUSTER
from phalanx.cluster.formats.gpu_type import read_gpu_type
from phalanx.document import Field, Fields
from phalanx.document.field import nearest
from phalanx.workload.formats.limits import (
    GANG_DEPTH_MAX,
    GPU_MEMORY_GB_MAX,
    GPU_TYPES_MAX,
    GPUS_PER_TASK_MAX,
    NICS_MAX,
    REPLICAS_MAX,
    ROLES_MAX,
    STORAGE_GB_MAX,
    TASKS_MAX,
    TIERS_MAX,
)
from phalanx.workload.formats.nodes import read_labels, read_tolerations
from phalanx.workload.gang import ANYWHERE, Gang, Role, Task, Topology
from phalanx.workload.share import ShareAsk

TASK_KEYS = ("gpus", "gpu_type", "gpu_memory_gb", "cpus", "memory_gb", "nics", "storage")
NODE_KEYS = ("node_selector", "tolerations")
ROLE_KEYS = ("role", "replicas", *TASK_KEYS, *NODE_KEYS, "topology", "gang")
REPLICAS_KEYS = ("min", "max")
AMOUNT_KEYS = ("request", "limit")
TOPOLOGY_KEYS = ("required", "preferred")


@dataclass(frozen=True, slots=True)
class TaskReader:
    """What holds for every task of a job: its share of a device, a site's own GPU types, and its levels and tiers.

    Where no levels or no tiers are given, they are not known yet.
    """

    share: ShareAsk | None
    gpu_types: Collection[str]
    levels: Collection[str] = ()
    tiers: Collection[str] | None = None

    def gang(self, job: Fields) -> Gang:
        """The gang of a job; one task where the job gives that task's keys itself."""
        topology = job.get("topology", self._topology, ANYWHERE)
        if "gang" not in job:
            return Gang((Role(task=self.task(job)),), topology)
        job.refuse(TASK_KEYS, "give it in the roles of 'gang'")
        roles = self._roles(job["gang"], 1)
        tasks = sum(_tasks(role) for role in roles)
        if tasks > TASKS_MAX:
            raise job["gang"].error(f"expected at most {TASKS_MAX} tasks, got {tasks}")
        return Gang(roles, topology)

    def _roles(self, field: Field, depth: int) -> tuple[Role, ...]:
        if depth > GANG_DEPTH_MAX:
            raise field.error(f"expected at most {GANG_DEPTH_MAX} gangs inside one another, got more")
        roles: dict[str, Role] = {}
        for item in field.items(1, ROLES_MAX):
            role = self._role(item, depth)
            if role.name in roles:
                raise item.error(f"the role '{role.name}' is given twice, tell them apart by 'role'")
            roles[role.name] = role
        return tuple(roles.values())

    def _role(self, field: Field, depth: int) -> Role:
        fields = field.mapping(ROLE_KEYS)
        least, most = fields.get("replicas", _read_replicas, (1, 1))
        members: tuple[Role, ...] = ()
        if "gang" in fields:
            no_task = "a role with a gang of its own has no task, give it in the roles of that gang"
            fields.refuse((*TASK_KEYS, *NODE_KEYS), no_task)
            members = self._roles(fields["gang"], depth + 1)
        return Role(
            name=fields.get("role", Field.name, "worker"),
            replicas_min=least,
            replicas_max=most,
            task=Task() if members else self._task_of_role(fields),
            members=members,
            topology=fields.get("topology", self._topology, ANYWHERE),
        )

    def _task_of_role(self, fields: Fields) -> Task:
        """The task of a role, with what it asks of its nodes beside what the job does."""
        return replace(
            self.task(fields),
            node_selector=fields.get("node_selector", read_labels, ()),
            tolerations=fields.get("tolerations", read_tolerations, ()),
        )

    def task(self, fields: Fields) -> Task:
        """One task, from the keys of a role or of a job without a gang."""
        gpus = fields.get("gpus", lambda gpus: gpus.integer(0, GPUS_PER_TASK_MAX), 0)
        if not gpus:
            fields.refuse(("gpu_type", "gpu_memory_gb"), "the task asks for no GPUs, give their number in 'gpus'")
        if gpus > 1 and self.share is not None:
            raise fields["gpus"].expected("gpus: 1 beside 'share', which is a part of one device")
        cpus, cpus_limit = fields.get("cpus", lambda cpus: _read_amount(cpus, Field.cpus_milli), (0, 0))
        memory, memory_limit = fields.get("memory_gb", lambda size: _read_amount(size, Field.memory_mb), (0, 0))
        return Task(
            gpus=gpus,
            gpu_types=fields.get("gpu_type", self._gpu_types, ()),
            gpu_memory_gb=fields.get("gpu_memory_gb", lambda size: size.number(0, GPU_MEMORY_GB_MAX), 0.0),
            share=self.share if gpus else None,
            cpus_milli=cpus,
            cpus_limit_milli=cpus_limit,
            memory_mb=memory,
            memory_limit_mb=memory_limit,
            nics=fields.get("nics", lambda nics: nics.integer(0, NICS_MAX), 0),
            storage_gb=fields.get("storage", self._storage, ()),
        )

    def _gpu_types(self, field: Field) -> tuple[str, ...]:
        items = field.items(1, GPU_TYPES_MAX) if field.is_list else (field,)
        return tuple(dict.fromkeys(read_gpu_type(item, self.gpu_types) for item in items))

    def _storage(self, field: Field) -> tuple[tuple[str, int], ...]:
        return tuple(
            sorted((self._tier(size, tier), size.integer(0, STORAGE_GB_MAX)) for tier, size in field.entries(TIERS_MAX))
        )

    def _tier(self, field: Field, tier: str) -> str:
        if self.tiers is not None and tier not in self.tiers:
            known = nearest(tier, self.tiers) if self.tiers else "it has none"
            raise field.error(f"this cluster has no storage tier '{tier}', {known}")
        return field.key(tier)

    def _topology(self, field: Field) -> Topology:
        """How close: names of levels."""
        fields = field.mapping(TOPOLOGY_KEYS)
        return Topology(fields.get("required", self._level, ""), fields.get("preferred", self._level, ""))

    def _level(self, field: Field) -> str:
        level, known = field.name(), (*self.levels, CLUSTER)
        if self.levels and level not in known:
            raise field.error(f"this cluster has no level '{level}', {nearest(level, known)}")
        return level


def _read_replicas(field: Field) -> tuple[int, int]:
    if not field.is_mapping:
        replicas = field.integer(1, REPLICAS_MAX)
        return replicas, replicas
    fields = field.mapping(REPLICAS_KEYS)
    least = fields.need("min", lambda least: least.integer(1, REPLICAS_MAX))
    return least, fields.need("max", lambda most: most.integer(least, REPLICAS_MAX))


def _read_amount(field: Field, read: Callable[[Field], int]) -> tuple[int, int]:
    """A request and its limit: one number is both, and a limit alone is the request too."""
    if not field.is_mapping:
        amount = read(field)
        return amount, amount
    fields = field.mapping(AMOUNT_KEYS)
    given = fields.given(AMOUNT_KEYS)
    if given is None:
        raise field.expected("a number, or a mapping with request and limit")
    request = fields.get("request", read, None)
    limit = fields.get("limit", read, request)
    assert limit is not None
    if request is not None and request > limit:
        raise fields["limit"].expected(f"a limit of at least the request, which is {fields['request'].shown}")
    return limit if request is None else request, limit


def _tasks(role: Role) -> int:
    """Tasks of a role at its largest."""
    return role.replicas_max * (sum(_tasks(member) for member in role.members) if role.members else 1)
