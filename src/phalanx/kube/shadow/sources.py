"""Sources: what is recorded of a cluster, and what of that an account may read."""

from __future__ import annotations

from typing import Any

from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import ForbiddenError, NotFoundError
from phalanx.kube.gangs.discovery import KINDS, served_groups
from phalanx.kube.mirror import NODES, PODS, PRIORITIES
from phalanx.kube.objects.ended import SeenPod
from phalanx.kube.objects.meta import Stored
from phalanx.kube.objects.node import KubeNode
from phalanx.kube.objects.queue import PriorityClass
from phalanx.kube.shadow.recording import RecordingError

NEEDED = (NODES, PODS)

Sources = dict[str, tuple[str, type[Any]]]
"""Where each kind is, and as what it is read."""


def types() -> dict[str, type[Stored]]:
    """As what each kind is read."""
    groups = {kind: as_type for kind, (_, _, as_type) in KINDS.items()}
    return {NODES: KubeNode, PODS: SeenPod, PRIORITIES: PriorityClass, **groups}


def readable(client: Client) -> tuple[Sources, dict[str, str]]:
    """What may be read, and what may not, with what the server says. Without nodes or pods there is nothing to see."""
    sources: Sources = {
        NODES: ("/api/v1/nodes", KubeNode),
        PODS: ("/api/v1/pods", SeenPod),
        PRIORITIES: ("/apis/scheduling.k8s.io/v1/priorityclasses", PriorityClass),
        **served_groups(client),
    }
    missing = {}
    for kind, (path, _) in list(sources.items()):
        try:
            client.ask("GET", f"{path}?limit=1")
        except (ForbiddenError, NotFoundError) as error:
            if kind in NEEDED:
                raise RecordingError(
                    f"{error}\nshadow and snapshot need list and watch on nodes and pods of all namespaces: "
                    "`phalanx kube install --print --shadow` prints an account that may"
                ) from error
            missing[kind] = str(error)
            del sources[kind]
    return sources, missing
