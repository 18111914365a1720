"""Discovery: in which dialects an API server is told which pods start together."""

from __future__ import annotations

import time
from typing import Any

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

    name: str = ""
    versions: list[dict[str, str]] | None = None


class ApiGroups(Wire, frozen=True):
    """The API groups that a server has."""

    groups: list[ApiGroup] | None = None


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


Kinds = dict[str, tuple[str, type[Any]]]
"""Where the objects of each kind are, and as what they are read."""


def served_groups(client: Client) -> Kinds:
    """What the server has of `KINDS`. A version that is named before it is there is waited for."""
    until = time.monotonic() + SETTLES_S
    while True:
        try:
            return served_now(client)
        except NotFoundError:
            if time.monotonic() > until:
                raise
        time.sleep(0.1)


def served_now(client: Client) -> Kinds:
    """What the server has of `KINDS` at this moment. Raises NotFoundError where a version is named and not there."""
    groups = {each.name: each.versions or [] for each in client.get("/apis", ApiGroups).groups or ()}
    plurals: dict[str, dict[str, None]] = {}
    found: Kinds = {}
    for dialect, (api, plural, as_type) in KINDS.items():
        for version in groups.get(api, ()):
            path = f"/apis/{api}/{version.get('version', '')}"
            if path not in plurals:
                resources = client.get(path, ApiResources).resources or ()
                plurals[path] = {each.name: None for each in resources}
            if plural in plurals[path]:
                found[dialect] = f"{path}/{plural}", as_type
                break
    return found
