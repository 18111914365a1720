"""Discovery: in which dialects an API server is told which pods start together."""

from __future__ import annotations

from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import NotFoundError
from phalanx.kube.gangs.groups import JOB, JOB_SET, LEADER_WORKER_SET, NATIVE, PLUGINS, VOLCANO
from phalanx.kube.objects.group import PodGroup
from phalanx.kube.objects.hyper_node import HyperNode
from phalanx.kube.objects.meta import Named, Stored, Wire
from phalanx.kube.objects.owner import BatchJob, JobSet, LeaderWorkerSet


class ApiGroup(Wire, frozen=True):
    """The versions of an API group that a server has, the preferred one first."""

    versions: list[dict[str, str]] | None = None


class ApiResources(Wire, frozen=True):
    """What one version of an API group has."""

    resources: list[Named] | None = None


HYPER_NODES = "topology.volcano.sh"

KINDS: dict[str, tuple[str, type[Stored]]] = {
    NATIVE: ("podgroups", PodGroup),
    PLUGINS: ("podgroups", PodGroup),
    VOLCANO: ("podgroups", PodGroup),
    JOB: ("jobs", BatchJob),
    JOB_SET: ("jobsets", JobSet),
    LEADER_WORKER_SET: ("leaderworkersets", LeaderWorkerSet),
    HYPER_NODES: ("hypernodes", HyperNode),
}
"""What says in each dialect which pods start together, and where."""


def served_groups(client: Client) -> dict[str, tuple[str, type[Stored]]]:
    """Where that is in each dialect that the server has, and as what it is read."""
    found = {}
    for dialect, (plural, as_type) in KINDS.items():
        try:
            versions = client.get(f"/apis/{dialect}", ApiGroup).versions or ()
        except NotFoundError:
            continue
        for version in versions:
            path = f"/apis/{dialect}/{version.get('version', '')}"
            if any(each.name == plural for each in client.get(path, ApiResources).resources or ()):
                found[dialect] = f"{path}/{plural}", as_type
                break
    return found
