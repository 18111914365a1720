"""Discovery: in which dialects an API server is told which pods start together."""

from __future__ import annotations

import time

from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import NotFoundError
from phalanx.kube.gangs.groups import (
    COMPOSITE,
    JOB,
    JOB_SET,
    KAI,
    KUBEFLOW,
    KUBEFLOW_KINDS,
    LEADER_WORKER_SET,
    NATIVE,
    PLUGINS,
    RAY,
    VOLCANO,
)
from phalanx.kube.objects.composite import CompositePodGroup
from phalanx.kube.objects.group import PodGroup
from phalanx.kube.objects.hyper_node import HyperNode
from phalanx.kube.objects.kubeflow import KubeflowJob
from phalanx.kube.objects.meta import Named, Stored, Wire
from phalanx.kube.objects.owner import BatchJob, JobSet, LeaderWorkerSet, RayCluster
from phalanx.kube.objects.queue import VolcanoQueue


class ApiGroup(Wire, frozen=True):
    """The versions of an API group that a server has, the preferred one first."""

    versions: list[dict[str, str]] | None = None


class ApiResources(Wire, frozen=True):
    """What one version of an API group has."""

    resources: list[Named] | None = None


SETTLES_S = 10.0
"""A server names an API group a moment before its versions are there, and after they are gone."""

HYPER_NODES = "topology.volcano.sh"
QUEUES = "queues of Volcano"

KINDS: dict[str, tuple[str, str, type[Stored]]] = {
    NATIVE: (NATIVE, "podgroups", PodGroup),
    COMPOSITE: (NATIVE, "compositepodgroups", CompositePodGroup),
    PLUGINS: (PLUGINS, "podgroups", PodGroup),
    VOLCANO: (VOLCANO, "podgroups", PodGroup),
    KAI: (KAI, "podgroups", PodGroup),
    JOB: (JOB, "jobs", BatchJob),
    JOB_SET: (JOB_SET, "jobsets", JobSet),
    LEADER_WORKER_SET: (LEADER_WORKER_SET, "leaderworkersets", LeaderWorkerSet),
    RAY: (RAY, "rayclusters", RayCluster),
    **{f"{KUBEFLOW} {kind}": (KUBEFLOW, f"{kind.lower()}s", KubeflowJob) for kind in KUBEFLOW_KINDS},
    HYPER_NODES: (HYPER_NODES, "hypernodes", HyperNode),
    QUEUES: (VOLCANO, "queues", VolcanoQueue),
}
"""What says in each dialect which pods start together, where, and in which queue: its API group, plural and type."""


def served_groups(client: Client) -> dict[str, tuple[str, type[Stored]]]:
    """Where that is in each dialect that the server has, and as what it is read."""
    found = {}
    for dialect, (api, plural, as_type) in KINDS.items():
        path = _path(client, api, plural)
        if path is not None:
            found[dialect] = path, as_type
    return found


def _path(client: Client, api: str, plural: str) -> str | None:
    until = time.monotonic() + SETTLES_S
    while True:
        try:
            return _path_now(client, api, plural)
        except NotFoundError:
            if time.monotonic() > until:
                raise
        time.sleep(0.1)


def _path_now(client: Client, api: str, plural: str) -> str | None:
    """Raises NotFoundError where a version is named and not there."""
    for version in _versions(client, api):
        path = f"/apis/{api}/{version.get('version', '')}"
        if any(each.name == plural for each in client.get(path, ApiResources).resources or ()):
            return f"{path}/{plural}"
    return None


def _versions(client: Client, api: str) -> list[dict[str, str]]:
    try:
        return client.get(f"/apis/{api}", ApiGroup).versions or []
    except NotFoundError:
        return []
