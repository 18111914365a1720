"""What is created for an attempt: a pod for each task, a Secret with what it is told alone, and a Service to meet at.

Nothing that a job says chooses a namespace, a service account, a right, or a folder of a node beyond those allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from phalanx.backends.kubernetes.pod import ATTEMPT, JOB, RANK, SERVER, TASK
from phalanx.backends.kubernetes.settings import Settings
from phalanx.backends.local.orders import OrderError
from phalanx.placement.placement import Slot
from phalanx.workload.gang import Task
from phalanx.workload.job import Job, UnixIdentity

Manifest = dict[str, Any]

SCHEDULER = "phalanx-server"
"""Names no scheduler that runs: a pod stays pending until the whole gang is there, and is then bound by the server."""

CHECKPOINTS, CERTIFICATE, SHARED_MEMORY = "/phalanx/checkpoints", "/phalanx/tls/ca.pem", "/dev/shm"
STOP_S = 30

_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,511}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_UNFIT = re.compile(r"[^a-z0-9]+")
_SLUG_MAX = 24

TOLERATED = [
    {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute"}
    for state in ("not-ready", "unreachable")
]
"""phalanx itself decides when a node is lost: pods there may well run on."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The server and attempt that something is made for."""

    server: str
    job: str
    attempt: int

    @property
    def name(self) -> str:
        """What its Service and Secret are called, and how the names of its pods begin: a label of DNS."""
        slug = _UNFIT.sub("-", self.job.lower()).strip("-")
        if slug != self.job or len(slug) > _SLUG_MAX:
            slug = f"{slug[:_SLUG_MAX].strip('-')}-{crc32(self.job.encode()):08x}".lstrip("-")
        return f"phx-{self.server[:6]}-{slug}-{self.attempt}"

    def pod_name(self, rank: int) -> str:
        """What the pod of a task is called."""
        return f"{self.name}-{rank}"

    def labels(self) -> dict[str, str]:
        """By what all of it is found."""
        slug = _UNFIT.sub("-", self.job.lower()).strip("-")[:50].strip("-")
        return {SERVER: self.server, JOB: slug, ATTEMPT: str(self.attempt)}

    def metadata(self, name: str, settings: Settings) -> Manifest:
        """Name, labels and the true id of the job."""
        notes = {JOB: self.job}
        return {"name": name, "namespace": settings.namespace, "labels": self.labels(), "annotations": notes}


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """One task: where, what it asks for, its variables, and the resource by which its kubelet gives out GPUs."""

    slot: Slot
    task: Task
    env: Mapping[str, str]
    gpu_resource: str = ""


@dataclass(frozen=True, slots=True)
class Gang:
    """All that the pods of an attempt have in common. `secret` are variables that its Secret holds."""

    owner: Owner
    job: Job
    identity: UnixIdentity | None
    secret: Mapping[str, str] = field(default_factory=dict)
    certificate: str = ""
    meets: bool = False


def pod_manifest(gang: Gang, plan: TaskPlan, settings: Settings) -> Manifest:
    """The pod of a task. It is bound to its node later."""
    owner, job = gang.owner, gang.job
    metadata = owner.metadata(owner.pod_name(plan.slot.rank), settings)
    metadata["labels"][RANK] = str(plan.slot.rank)
    volumes, mounts = _volumes(gang, plan.task, settings)
    spec: Manifest = {
        "schedulerName": SCHEDULER,
        "restartPolicy": "Never",
        "serviceAccountName": settings.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostNetwork": settings.host_network,
        # What a task starts does not outlive it, and it minds SIGTERM: the first process of all would not.
        "shareProcessNamespace": True,
        "terminationGracePeriodSeconds": max(-(-job.grace_ms // 1000), 1),
        "tolerations": TOLERATED,
        "securityContext": _pod_security(gang.identity, settings),
        "containers": [_container(gang, plan, settings, mounts)],
        "volumes": volumes,
    }
    if gang.meets and not settings.host_network:
        spec |= {"hostname": f"task-{plan.slot.rank}", "subdomain": owner.name}
    for key, value in (("runtimeClassName", settings.runtime_class), ("priorityClassName", settings.priority_class)):
        if value:
            spec[key] = value
    if settings.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def service_manifest(owner: Owner, settings: Settings) -> Manifest:
    """The headless Service by which pods find one another, from before they are ready."""
    spec = {"clusterIP": "None", "selector": owner.labels(), "publishNotReadyAddresses": True}
    return {"apiVersion": "v1", "kind": "Service", "metadata": owner.metadata(owner.name, settings), "spec": spec}


def secret_manifest(gang: Gang, settings: Settings) -> Manifest:
    """The Secret with what only this attempt may know: its token, its secrets, the certificate to trust."""
    data = dict(gang.secret) | ({"ca.pem": gang.certificate} if gang.certificate else {})
    metadata = gang.owner.metadata(gang.owner.name, settings)
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data, "immutable": True}


def address_of(owner: Owner, rank: int, settings: Settings) -> str:
    """The name of a task's pod in the cluster's DNS."""
    return f"task-{rank}.{owner.name}.{settings.namespace}.svc"


def image_of(job: Job, settings: Settings) -> str:
    """The image that a job runs in."""
    image = job.execution.image or settings.image
    if not image:
        raise OrderError(f"job {job.id}: on Kubernetes a job needs an `image`, or the server one for those without")
    if not _IMAGE.fullmatch(image):
        raise OrderError(f"image '{image}': expected a name such as registry.example/team/image:tag")
    return image


def _container(gang: Gang, plan: TaskPlan, settings: Settings, mounts: list[Manifest]) -> Manifest:
    execution = gang.job.execution
    container: Manifest = {
        "name": TASK,
        "image": image_of(gang.job, settings),
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": name, "value": _literally(value)} for name, value in sorted(_checked(plan.env).items())]
        + [_from_secret(gang.owner.name, name) for name in sorted(_checked(gang.secret))],
        "resources": _resources(plan),
        "securityContext": {
            "privileged": False,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "File",
        "volumeMounts": mounts,
    }
    if execution.command:
        container["command"] = [_literally(word) for word in execution.command]
    if execution.workdir:
        container["workingDir"] = execution.workdir
    return container


def _literally(text: str) -> str:
    """Kubernetes puts variables in place of $(NAME); a job means what it says."""
    return text.replace("$(", "$$(")


def _from_secret(secret: str, name: str) -> Manifest:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": name}}}


def _checked(variables: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in variables.items():
        if not _VARIABLE.fullmatch(name):
            raise OrderError(f"env: '{name}': expected a name of letters, digits, '_', '.' and '-' for a pod")
        if "\0" in value:
            raise OrderError(f"env: the value of '{name}' has a zero byte, which no process could be given")
    return variables


def _resources(plan: TaskPlan) -> Manifest:
    task, gpus = plan.task, len(plan.slot.devices)
    requests, limits = {}, {}
    if task.cpus_milli:
        requests["cpu"] = f"{task.cpus_milli}m"
    if task.cpus_limit_milli or task.cpus_milli:
        limits["cpu"] = f"{task.cpus_limit_milli or task.cpus_milli}m"
    if task.memory_mb:
        requests["memory"] = f"{task.memory_mb}Mi"
    if task.memory_limit_mb or task.memory_mb:
        limits["memory"] = f"{task.memory_limit_mb or task.memory_mb}Mi"
    if gpus and plan.gpu_resource:
        limits[plan.gpu_resource] = str(gpus)
    return {"requests": requests, "limits": limits}


def _pod_security(identity: UnixIdentity | None, settings: Settings) -> Manifest:
    """The user of the account, else that of the settings, else that of the image."""
    security: Manifest = {"seccompProfile": {"type": "RuntimeDefault"}}
    ids = user_of(identity, settings)
    if ids is not None:
        security |= {"runAsNonRoot": True, "runAsUser": ids[0], "runAsGroup": ids[1], "fsGroup": ids[1]}
    return security


def user_of(identity: UnixIdentity | None, settings: Settings) -> tuple[int, int] | None:
    """User and group, never root; None where only the image says."""
    if identity is not None:
        if identity.uid == 0:
            raise OrderError("tasks never run as root: have the job submitted again")
        return identity.uid, identity.gid
    if settings.user is not None:
        return settings.user, settings.group or settings.user
    return None


def _volumes(gang: Gang, task: Task, settings: Settings) -> tuple[list[Manifest], list[Manifest]]:
    memory: Manifest = {"medium": "Memory"}
    if task.memory_mb:
        memory["sizeLimit"] = f"{task.memory_limit_mb or task.memory_mb}Mi"
    volumes: list[Manifest] = [{"name": "shm", "emptyDir": memory}]
    mounts: list[Manifest] = [{"name": "shm", "mountPath": SHARED_MEMORY}]
    if settings.checkpoints:
        volumes.append({"name": "checkpoints", "persistentVolumeClaim": {"claimName": settings.checkpoints}})
        mounts.append({"name": "checkpoints", "mountPath": CHECKPOINTS, "subPath": gang.job.id})
    else:
        volumes.append({"name": "checkpoints", "emptyDir": {}})
        mounts.append({"name": "checkpoints", "mountPath": CHECKPOINTS})
    if gang.certificate:
        items = [{"key": "ca.pem", "path": "ca.pem"}]
        volumes.append({"name": "tls", "secret": {"secretName": gang.owner.name, "items": items}})
        mounts.append({"name": "tls", "mountPath": "/phalanx/tls", "readOnly": True})
    for number, (source, target) in enumerate(gang.job.execution.mounts):
        volume, mount = _host_folder(f"mount-{number}", source, target, gang, settings)
        volumes.append(volume)
        mounts.append(mount)
    return volumes, mounts


def _host_folder(name: str, source: str, target: str, gang: Gang, settings: Settings) -> tuple[Manifest, Manifest]:
    """A folder of the node. Its kubelet follows no link out of the allowed one: the rest of the path is a subPath."""
    for path in (source, target):
        if not path.startswith("/") or ":" in path or ".." in path.split("/"):
            raise OrderError(f"mount '{path}': expected an absolute path without ':' and '..'")
    root = next((root for root in settings.host_paths if f"{source.rstrip('/')}/".startswith(f"{root}/")), "")
    if not root:
        allowed = ", ".join(settings.host_paths) or "none"
        raise OrderError(f"mount '{source}': the operator allows folders below these of the nodes: {allowed}")
    if user_of(gang.identity, settings) is None:
        raise OrderError(f"mount '{source}': the job could be root in its image; give its account a Unix user")
    if _reserved(target):
        raise OrderError(f"mount '{target}': phalanx itself mounts what is there")
    mount: Manifest = {"name": name, "mountPath": target}
    rest = source[len(root) :].strip("/")
    if rest:
        mount["subPath"] = rest
    return {"name": name, "hostPath": {"path": root, "type": "Directory"}}, mount


def _reserved(target: str) -> bool:
    parts: Sequence[str] = [part for part in target.split("/") if part]
    return not parts or parts[0] in ("phalanx", "proc", "sys", "dev")
