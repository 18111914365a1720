"""OpenPAI's job protocol, version 2: one file, one job of several task roles.

`extras.hivedScheduler` says what of the cells a job may use, `extras.gangAllocation` whether its tasks start together
(the default) or each on its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from phalanx.cluster.cells import Sku
from phalanx.document import Field, Fields, read_document
from phalanx.document.field import CPUS_MAX, nearest
from phalanx.workload.formats.execution import secret_name
from phalanx.workload.formats.limits import ARGUMENTS_MAX, GPUS_PER_TASK_MAX, JOB_LIMITS, REPLICAS_MAX, ROLES_MAX
from phalanx.workload.gang import Gang, Role, Task
from phalanx.workload.job import Array, Execution, Job

PRIORITIES = {"crit": 120, "prod": 100, "test": 10, "oppo": -1}
PRIORITY_DEFAULT = "test"
MEMORY_MB_MAX = 1024 * 1024 * 1024
RETRIES_MAX = 1_000_000
ITEMS_MAX = 10_000

JOB_KEYS = (
    "protocolVersion",
    "name",
    "type",
    "version",
    "contributor",
    "description",
    "prerequisites",
    "parameters",
    "secrets",
    "jobRetryCount",
    "taskRoles",
    "deployments",
    "defaults",
    "extras",
)
ROLE_KEYS = (
    "instances",
    "completion",
    "taskRetryCount",
    "dockerImage",
    "data",
    "output",
    "script",
    "extraContainerOptions",
    "resourcePerInstance",
    "commands",
    "prerequisites",
)
RESOURCE_KEYS = ("cpu", "memoryMB", "gpu", "ports")
CELL_KEYS = (
    "skuType",
    "skuNum",
    "gpuType",
    "pinnedCellId",
    "affinityGroupName",
    "lazyPreemptionEnable",
    "gangReleaseEnable",
    "ignoreK8sSuggestedNodes",
)

_PARAMETER = re.compile(r"<%\s*\$parameters\.([\w-]+)\s*%>")


@dataclass(frozen=True, slots=True)
class PaiRole:
    """A task role: so many equal instances."""

    name: str
    instances: int
    gpus: int
    cpus_milli: int
    memory_mb: int
    commands: tuple[str, ...]
    image: str
    retries: int = 0
    failed_min: int = 1
    succeeded_min: int = -1
    sku_type: str = ""
    pinned_id: str = ""
    affinity_group: str = ""
    lazy_preemption: bool = False

    def leaves(self, skus: Mapping[str, Sku]) -> int:
        """Leaves of one instance: as many of its SKU as its GPUs, CPUs and memory come to."""
        known = [skus[self.sku_type]] if self.sku_type in skus else list(skus.values())
        if not known:
            return max(self.gpus, 1)
        gpus, cpus, memory = (
            min(sku.gpus for sku in known),
            min(sku.cpus_milli for sku in known),
            min(sku.memory_mb for sku in known),
        )
        asked = ((self.gpus, gpus), (self.cpus_milli, cpus), (self.memory_mb, memory))
        return max(1, *(math.ceil(amount / each) if each else 0 for amount, each in asked))


@dataclass(frozen=True, slots=True)
class PaiJob:
    """A job of OpenPAI."""

    name: str
    virtual_cluster: str
    priority: int
    is_gang: bool
    roles: tuple[PaiRole, ...]
    retries: int = 0
    secrets: tuple[str, ...] = ()

    def groups(self) -> dict[str, list[PaiRole]]:
        """Roles that start together, by the name of their group. Roles in none start instance by instance."""
        named: dict[str, list[PaiRole]] = {}
        for role in self.roles:
            if role.affinity_group:
                named.setdefault(role.affinity_group, []).append(role)
        return named or ({"default": list(self.roles)} if self.is_gang else {})

    def alone(self) -> list[PaiRole]:
        """Roles whose instances start one by one."""
        grouped = [role.name for roles in self.groups().values() for role in roles]
        return [role for role in self.roles if role.name not in grouped]


def read_openpai(text: str, source: str) -> PaiJob:
    """Reads a job file of OpenPAI."""
    fields = read_document(text, source, JOB_LIMITS).mapping(JOB_KEYS)
    fields.get("protocolVersion", lambda version: _choice(version, ("2",)), "2")
    fields.get("type", lambda kind: kind.choice(("job",)), "job")
    extras = fields.get("extras", lambda extras: dict(extras.entries(ITEMS_MAX)), {})
    cells = extras["hivedScheduler"].mapping(("jobPriorityClass", "taskRoles")) if "hivedScheduler" in extras else None
    priority = PRIORITY_DEFAULT
    if cells is not None:
        priority = cells.get("jobPriorityClass", lambda name: name.choice(tuple(PRIORITIES)), PRIORITY_DEFAULT)
    defaults = fields.get("defaults", lambda defaults: defaults.mapping(("virtualCluster", "deployment")), None)
    reader = _RoleReader(fields, cells, defaults)
    job = PaiJob(
        fields.need("name", Field.name),
        defaults.get("virtualCluster", Field.title, "default") if defaults is not None else "default",
        PRIORITIES[priority],
        extras["gangAllocation"].boolean() if "gangAllocation" in extras else True,
        fields.need("taskRoles", reader.roles),
        fields.get("jobRetryCount", lambda count: count.integer(0, RETRIES_MAX), 0),
        fields.get("secrets", _read_secrets, ()),
    )
    _refuse_mixed_groups(fields, job)
    return job


class _RoleReader:
    """Reads task roles with what other parts of the file say about them."""

    def __init__(self, job: Fields, cells: Fields | None, defaults: Fields | None) -> None:
        self.images = job.get("prerequisites", _read_images, {})
        self.parameters = dict(job["parameters"].pairs(ITEMS_MAX)) if "parameters" in job else {}
        self.cells = cells.get("taskRoles", lambda roles: dict(roles.entries(ROLES_MAX)), {}) if cells else {}
        deployment = defaults.get("deployment", Field.title, "") if defaults is not None else ""
        self.around = _read_deployment(job, deployment)

    def roles(self, field: Field) -> tuple[PaiRole, ...]:
        entries = dict(field.entries(ROLES_MAX))
        if not entries:
            raise field.error("expected at least one task role")
        for name, cell in self.cells.items():
            if name not in entries:
                raise cell.error(f"there is no task role '{name}', {nearest(name, entries)}")
        return tuple(self._role(name, entry) for name, entry in entries.items())

    def _role(self, name: str, field: Field) -> PaiRole:
        fields = field.mapping(ROLE_KEYS)
        instances = fields.get("instances", lambda count: count.integer(1, REPLICAS_MAX), 1)
        needs = fields.need("resourcePerInstance", lambda needs: needs.mapping(RESOURCE_KEYS))
        done = fields.get(
            "completion", lambda done: done.mapping(("minFailedInstances", "minSucceededInstances")), None
        )
        commands = fields.need("commands", lambda items: [item.text() for item in items.items(1, ARGUMENTS_MAX)])
        before, after = self.around.get(name, ([], []))
        return PaiRole(
            name,
            instances,
            needs.get("gpu", lambda gpus: gpus.integer(0, GPUS_PER_TASK_MAX), 0),
            needs.get("cpu", lambda cpus: int(cpus.decimal(0, CPUS_MAX) * 1000), 0),
            needs.get("memoryMB", lambda memory: memory.integer(0, MEMORY_MB_MAX), 0),
            tuple(_PARAMETER.sub(self._value, command) for command in [*before, *commands, *after]),
            fields.get("dockerImage", self._image, ""),
            fields.get("taskRetryCount", lambda count: count.integer(0, RETRIES_MAX), 0),
            done.get("minFailedInstances", lambda count: _threshold(count, instances), 1) if done else 1,
            done.get("minSucceededInstances", lambda count: _threshold(count, instances), -1) if done else -1,
            **self._cells_of(name),
        )

    def _cells_of(self, name: str) -> dict[str, Any]:
        if name not in self.cells:
            return {}
        fields = self.cells[name].mapping(CELL_KEYS)
        sku_type = fields.get("skuType", Field.title, "") or fields.get("gpuType", Field.title, "")
        pinned_id = fields.get("pinnedCellId", Field.title, "")
        if sku_type and pinned_id:
            raise self.cells[name].error("expected a skuType or a pinnedCellId, got both")
        return {
            "sku_type": sku_type,
            "pinned_id": pinned_id,
            "affinity_group": fields.get("affinityGroupName", Field.title, ""),
            "lazy_preemption": fields.get("lazyPreemptionEnable", Field.boolean, False),
        }

    def _image(self, field: Field) -> str:
        name = field.title()
        if name not in self.images:
            raise field.error(f"no prerequisite of type dockerimage is named '{name}', {nearest(name, self.images)}")
        return self.images[name]

    def _value(self, reference: re.Match[str]) -> str:
        return self.parameters.get(reference.group(1), reference.group())


def _read_images(field: Field) -> dict[str, str]:
    images: dict[str, str] = {}
    for item in field.items(0, ITEMS_MAX):
        entries = dict(item.entries(ITEMS_MAX))
        if "type" in entries and entries["type"].is_word("dockerimage"):
            for key in ("name", "uri"):
                if key not in entries:
                    raise item.error(f"the key '{key}' is missing")
            images[entries["name"].title()] = entries["uri"].title()
    return images


def _read_deployment(job: Fields, chosen: str) -> dict[str, tuple[list[str], list[str]]]:
    """Commands that the chosen deployment puts before and after those of each role."""
    if "deployments" not in job or not chosen:
        return {}
    names: list[str] = []
    for item in job["deployments"].items(0, ITEMS_MAX):
        fields = item.mapping(("name", "taskRoles"))
        names.append(fields.need("name", Field.title))
        if names[-1] == chosen:
            roles = fields.get("taskRoles", lambda roles: roles.entries(ROLES_MAX), ())
            return {name: _read_around(role) for name, role in roles}
    raise job["deployments"].error(f"there is no deployment '{chosen}', {nearest(chosen, names)}")


def _read_around(field: Field) -> tuple[list[str], list[str]]:
    fields = field.mapping(("preCommands", "postCommands"))

    def texts(items: Field) -> list[str]:
        return [item.text() for item in items.items(0, ARGUMENTS_MAX)]

    return fields.get("preCommands", texts, []), fields.get("postCommands", texts, [])


def _read_secrets(field: Field) -> tuple[str, ...]:
    """The names of secrets; what they are is nothing for a job file."""
    return tuple(secret_name(secret, name) for name, secret in field.entries(ITEMS_MAX))


def _refuse_mixed_groups(fields: Fields, job: PaiJob) -> None:
    for name, roles in job.groups().items():
        for role in roles[1:]:
            if role.affinity_group and (role.sku_type, role.pinned_id) != (roles[0].sku_type, roles[0].pinned_id):
                raise fields["extras"].error(
                    f"the roles {roles[0].name} and {role.name} are of one group, '{name}', "
                    f"and must have the same skuType or pinnedCellId"
                )


def _threshold(field: Field, instances: int) -> int:
    """A number of instances, or −1 for none."""
    return field.integer(-1, instances)


def _choice(field: Field, options: tuple[str, ...]) -> str:
    return field.choice(options)


def native_jobs(job: PaiJob) -> tuple[Job, ...]:
    """The job as native ones: one for each group of roles, an array for each role that starts instance by instance."""
    groups, alone = job.groups(), job.alone()
    is_one = len(groups) + len(alone) == 1
    return (
        *(_native(job, "" if is_one else name, tuple(roles)) for name, roles in groups.items()),
        *(_native(job, "" if is_one else role.name, (role,), is_array=True) for role in alone),
    )


def _native(job: PaiJob, suffix: str, roles: tuple[PaiRole, ...], is_array: bool = False) -> Job:
    labels = {f"openpai/image.{role.name}": role.image for role in roles if role.image != roles[0].image}
    for role in roles:
        if role.failed_min != 1 or role.succeeded_min not in (-1, role.instances):
            labels[f"openpai/completion.{role.name}"] = f"{role.failed_min} failed or {role.succeeded_min} succeeded"
    if roles[0].pinned_id:
        labels["hived/pinned-cell"] = roles[0].pinned_id
    if any(role.lazy_preemption for role in roles):
        labels["hived/lazy-preemption"] = "true"
    array = Array(tuple(range(roles[0].instances))) if is_array and roles[0].instances > 1 else None
    return Job(
        id="",
        gang=Gang(tuple(_native_role(role, 1 if is_array else role.instances) for role in roles)),
        name=f"{job.name}-{suffix}" if suffix else job.name,
        queue=job.virtual_cluster,
        priority=job.priority,
        array=array,
        retry_limit=max(job.retries, *(role.retries for role in roles)),
        labels=tuple(sorted(labels.items())),
        execution=Execution(_command(roles), roles[0].image, secrets=job.secrets),
    )


def _native_role(role: PaiRole, replicas: int) -> Role:
    types = (role.sku_type,) if role.sku_type and role.gpus else ()
    task = Task(
        gpus=role.gpus,
        gpu_types=types,
        cpus_milli=role.cpus_milli,
        cpus_limit_milli=role.cpus_milli,
        memory_mb=role.memory_mb,
        memory_limit_mb=role.memory_mb,
    )
    return Role(role.name, replicas, replicas, task)


def _command(roles: tuple[PaiRole, ...]) -> tuple[str, ...]:
    """A shell that runs the commands of its role."""
    scripts = ["\n".join(role.commands) for role in roles]
    if all(script == scripts[0] for script in scripts):
        return ("sh", "-c", scripts[0])
    cases = "\n".join(f"{role.name})\n{script}\n;;" for role, script in zip(roles, scripts, strict=True))
    return ("sh", "-c", f'case "$PHALANX_ROLE" in\n{cases}\nesac')


def hived_pods(job: PaiJob, skus: Mapping[str, Sku]) -> Iterator[dict[str, Any]]:
    """The pods of a job as HiveD's pod-scheduling-specs, each with its `name`."""
    for name, roles in job.groups().items():
        # One group has one type of leaf: roles of a whole-job gang that name none get that of the rest.
        kind = next((role.sku_type for role in roles if role.sku_type), "")
        roles = [replace(role, sku_type=role.sku_type or kind) for role in roles]
        members = [{"podNumber": role.instances, "leafCellNumber": role.leaves(skus)} for role in roles]
        for role in roles:
            for number in range(role.instances):
                yield _pod(job, role, number, skus) | {
                    "affinityGroup": {"name": f"{job.name}/{name}", "members": members}
                }
    for role in job.alone():
        for number in range(role.instances):
            yield _pod(job, role, number, skus)


def _pod(job: PaiJob, role: PaiRole, number: int, skus: Mapping[str, Sku]) -> dict[str, Any]:
    return {
        "name": f"{job.name}-{role.name}-{number}",
        "virtualCluster": job.virtual_cluster,
        "priority": job.priority,
        "pinnedCellId": role.pinned_id,
        "leafCellType": role.sku_type,
        "leafCellNumber": role.leaves(skus),
        "lazyPreemptionEnable": role.lazy_preemption,
    }
