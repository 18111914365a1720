"""RayClusters that make way: KubeRay itself ends their pods and makes them anew, which then wait as others do.

A RayJob whose head is evicted has failed; one that is suspended and resumed starts anew, and none of its retries is
spent. KubeRay finishes a suspension that it has begun, so that the resumption is asked for at once.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from phalanx.kube.api.errors import ApiError
from phalanx.kube.gangs.forming import RAY_NODE_TYPE
from phalanx.kube.objects.meta import Metadata, Owner, Stored
from phalanx.kube.objects.pod import Pod
from phalanx.kube.objects.ray import Suspendable, SuspendableList

T = TypeVar("T")

API = "/apis/ray.io/v1"
SUSPENDED = "phalanx.dev/suspended"
"""The annotation of what phalanx suspends, and so resumes also after it was killed in between."""

OPERATOR_S, LOOK_S = 30.0, 0.1
"""How long KubeRay may take to begin with a suspension, and how often it is looked at meanwhile."""


class Api(Protocol):
    """What this asks of an API server."""

    def get(self, path: str, as_type: type[T]) -> T: ...

    def patch(self, path: str, body: Any) -> object: ...


def make_way(api: Api, pods: tuple[Pod, ...]) -> bool:
    """Has KubeRay end all pods of the RayCluster that these are of, and make them anew.

    False where they are of none, or only some of its workers, which Ray can do without, or of a RayService.
    """
    head = next((pod for pod in pods if (pod.metadata.labels or {}).get(RAY_NODE_TYPE) == "head"), None)
    cluster = _controller(head.metadata, "RayCluster") if head is not None else None
    if head is None or cluster is None:
        return False
    path = f"{API}/namespaces/{head.metadata.namespace}/rayclusters/{cluster.name}"
    made_by = api.get(path, Stored).metadata
    if _controller(made_by, "RayService") is not None:
        return False
    job = _controller(made_by, "RayJob")
    if job is not None:
        path = f"{API}/namespaces/{head.metadata.namespace}/rayjobs/{job.name}"
    _restart(api, path, is_job=job is not None)
    return True


def resume_left(api: Api) -> None:
    """Resumes what was suspended by a phalanx that was killed before it could do so itself."""
    for plural in ("rayjobs", "rayclusters"):
        with suppress(ApiError):
            for each in api.get(f"{API}/{plural}", SuspendableList).items or ():
                if SUSPENDED in (each.metadata.annotations or {}):
                    path = f"{API}/namespaces/{each.metadata.namespace}/{plural}/{each.metadata.name}"
                    _ask(api, path, suspend=False)


def _restart(api: Api, path: str, is_job: bool) -> None:
    found = api.get(path, Suspendable)
    if found.spec.suspend:
        # Its user suspends it; the pods end by that.
        return
    if is_job and not found.spec.shutdown_after_job_finishes:
        told = f"RayJob {found.metadata.key} cannot make way: KubeRay needs shutdownAfterJobFinishes: true for that"
        raise ApiError(409, told)
    _ask(api, path, suspend=True)
    until = time.monotonic() + OPERATOR_S
    while not api.get(path, Suspendable).is_suspending:
        if time.monotonic() > until:
            _ask(api, path, suspend=False)
            raise ApiError(0, f"KubeRay did not suspend {path.rpartition('/')[2]} within {OPERATOR_S:.0f} s: is it up?")
        time.sleep(LOOK_S)
    _ask(api, path, suspend=False)


def _ask(api: Api, path: str, suspend: bool) -> None:
    mark = {"annotations": {SUSPENDED: "true" if suspend else None}}
    api.patch(path, {"metadata": mark, "spec": {"suspend": suspend}})


def _controller(metadata: Metadata, kind: str) -> Owner | None:
    return next((each for each in metadata.owner_references or () if each.controller and each.kind == kind), None)
