"""The binder: binds whole gangs, several pods at a time, and evicts them. Its answers come from threads of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from phalanx.kube import ray
from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import ApiError, ConflictError, NotFoundError, TooManyRequestsError
from phalanx.kube.objects.pod import Pod
from phalanx.kube.objects.volume import SELECTED_NODE
from phalanx.kube.saver import save_all, saves

T = TypeVar("T")

WORKERS = 8
EVICTIONS = 16
SAVINGS = 64
"""Gangs that are asked to save their work at the same time. Others are evicted beside them."""

JOB_ANNOTATION = "phalanx.dev/job"
"""The job that a pod was bound for: by it a scheduler that was restarted knows which pods belong together."""


@dataclass(frozen=True, slots=True)
class Bound:
    """All `pods` that were to be bound are; or `error` says why not, and `undone` were bound and are deleted again."""

    job: str
    attempt: int
    pods: tuple[str, ...]
    error: str = ""
    undone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evicted:
    """All pods of a gang were asked to end; or `error` says why some were not. `unsaved` are pods that were asked to
    save their work before, and did not, with why.
    """

    job: str
    attempt: int
    error: str = ""
    unsaved: tuple[tuple[Pod, str], ...] = ()


Answer = Bound | Evicted


class Fenced:
    """A client that writes only as long as it may: each time, right before."""

    def __init__(self, client: Client, may: Callable[[], bool]) -> None:
        self._client = client
        self._may = may

    def get(self, path: str, as_type: type[T]) -> T:
        """Reads an object."""
        return self._client.get(path, as_type)

    def post(self, path: str, body: object) -> None:
        """Asks for what a subresource does."""
        self._check()
        self._client.post(path, body)

    def patch(self, path: str, body: object) -> None:
        """Changes some fields of an object."""
        self._check()
        self._client.patch(path, body, "merge-patch")

    def delete(self, path: str, body: object) -> None:
        """Deletes an object."""
        self._check()
        self._client.delete(path, body)

    def _check(self) -> None:
        if not self._may():
            raise ApiError(0, "another replica may hold the lease by now")


class Binder:
    """Carries out on the API server what the engine decided, while it `may`. `tell` hears of every end."""

    def __init__(self, client: Client, tell: Callable[[Answer], None], may: Callable[[], bool]) -> None:
        self._client = Fenced(client, may)
        self._tell = tell
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="bind")
        # Pods that save their work take their time, an hour if they say so: all else goes on meanwhile.
        self._evictions = ThreadPoolExecutor(EVICTIONS, thread_name_prefix="evict")
        self._savings = ThreadPoolExecutor(SAVINGS, thread_name_prefix="save")

    def bind(self, job: str, attempt: int, places: tuple[tuple[Pod, str], ...]) -> None:
        """Binds all pods to their nodes, or has none of them bound."""
        gang = _Gang(self._client, self._tell, job, attempt, places)
        for pod, node in places:
            self._pool.submit(gang.bind, pod, node)

    def provision(self, job: str, attempt: int, claims: tuple[tuple[str, str], ...]) -> None:
        """Has volumes be made for claims, each for a node. Only a failure is told."""
        self._pool.submit(self._provision, job, attempt, claims)

    def evict(self, job: str, attempt: int, pods: tuple[Pod, ...], gone: tuple[Pod, ...]) -> None:
        """Asks pods to save their work, if they say how, and to end, with their grace; those whose nodes are `gone` are
        deleted at once.
        """
        pool = self._savings if saves(pods) else self._evictions
        pool.submit(self._evict, job, attempt, pods, gone)

    def resume_left(self) -> None:
        """Has RayClusters go on that were suspended by a scheduler which was killed meanwhile."""
        self._evictions.submit(ray.resume_left, self._client)

    def delete(self, pods: tuple[Pod, ...]) -> None:
        """Deletes pods that are not to be kept."""
        for pod in pods:
            self._pool.submit(_delete, self._client, pod, None)

    def close(self) -> None:
        """Waits for what is under way."""
        self._pool.shutdown()
        self._evictions.shutdown(wait=False, cancel_futures=True)
        self._savings.shutdown(wait=False, cancel_futures=True)

    def _provision(self, job: str, attempt: int, claims: tuple[tuple[str, str], ...]) -> None:
        try:
            for key, node in claims:
                namespace, _, name = key.partition("/")
                path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"
                self._client.patch(path, {"metadata": {"annotations": {SELECTED_NODE: node}}})
        except ApiError as error:
            self._tell(Bound(job, attempt, (), str(error)))

    def _evict(self, job: str, attempt: int, pods: tuple[Pod, ...], gone: tuple[Pod, ...]) -> None:
        error = ""
        unsaved: tuple[tuple[Pod, str], ...] = ()
        try:
            # A budget that refuses one refuses the gang: none is evicted then.
            for pod in pods:
                self._evict_one(pod, dry=True)
            unsaved = save_all(pods)
            if not ray.make_way(self._client, pods):
                for pod in pods:
                    self._evict_one(pod, dry=False)
            for pod in gone:
                _delete(self._client, pod, 0)
        except ApiError as refused:
            error = str(refused)
        self._tell(Evicted(job, attempt, error, unsaved))

    def _evict_one(self, pod: Pod, dry: bool) -> None:
        options = {"preconditions": {"uid": pod.metadata.uid}, **({"dryRun": ["All"]} if dry else {})}
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.metadata.name, "namespace": pod.metadata.namespace},
            "deleteOptions": options,
        }
        try:
            self._client.post(f"{_path(pod)}/eviction", body)
        except (NotFoundError, ConflictError):
            # It is gone already, or another pod has its name.
            return
        except TooManyRequestsError as error:
            raise TooManyRequestsError(error.status, f"pod {pod.metadata.key} may not be evicted: {error}") from error


class _Gang:
    """One gang that is being bound. The thread that binds the last of it undoes it, if one could not be bound."""

    def __init__(
        self,
        client: Fenced,
        tell: Callable[[Answer], None],
        job: str,
        attempt: int,
        places: tuple[tuple[Pod, str], ...],
    ) -> None:
        self._client = client
        self._tell = tell
        self._job, self._attempt = job, attempt
        self._lock = threading.Lock()
        self._left = len(places)
        self._keys = tuple(pod.metadata.key for pod, _ in places)
        self._bound: list[Pod] = []
        self._error = ""

    def bind(self, pod: Pod, node: str) -> None:
        """Binds one pod, unless another could not be bound."""
        error = ""
        if not self._error:
            try:
                bind_one(self._client, self._job, pod, node)
            except ApiError as refused:
                error = str(refused)
        else:
            error = self._error
        with self._lock:
            self._left -= 1
            if error:
                self._error = self._error or error
            else:
                self._bound.append(pod)
            is_last = not self._left
        if is_last:
            self._end()

    def _end(self) -> None:
        if not self._error:
            self._tell(Bound(self._job, self._attempt, self._keys))
            return
        try:
            for pod in self._bound:
                _delete(self._client, pod, None)
        except ApiError as error:
            # What is left of it is released when the scheduler starts again.
            self._error = f"{self._error}; and it could not be undone: {error}"
        undone = tuple(pod.metadata.key for pod in self._bound)
        self._tell(Bound(self._job, self._attempt, self._keys, self._error, undone))


def bind_one(client: Fenced, job: str, pod: Pod, node: str) -> None:
    """Binds one pod. One that is bound there already is as it should be."""
    metadata: dict[str, object] = {
        "name": pod.metadata.name,
        "namespace": pod.metadata.namespace,
        # A pod of the same name that came since is not bound.
        "uid": pod.metadata.uid,
        **({"annotations": {JOB_ANNOTATION: job}} if job else {}),
    }
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    try:
        client.post(f"{_path(pod)}/binding", body)
    except ConflictError:
        # A request that was repeated after a broken connection finds what it did itself.
        found = client.get(_path(pod), Pod)
        if found.metadata.uid != pod.metadata.uid or found.spec.node_name != node:
            raise


def _delete(client: Fenced, pod: Pod, grace_s: int | None) -> None:
    options: dict[str, object] = {"preconditions": {"uid": pod.metadata.uid}}
    if grace_s is not None:
        options["gracePeriodSeconds"] = grace_s
    try:
        client.delete(_path(pod), options)
    except (NotFoundError, ConflictError):
        return


def _path(pod: Pod) -> str:
    return f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
