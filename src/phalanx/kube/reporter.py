"""The reporter: writes why pods and groups wait as conditions and events, when that changes, beside everything else."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial

from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import ApiError, ConflictError
from phalanx.kube.api.events import MESSAGE_MAX, post_event, written
from phalanx.kube.gangs.groups import COMPOSITE, KUBEFLOW_KINDS, NATIVE, GroupRef
from phalanx.kube.objects.meta import Metadata
from phalanx.kube.objects.pod import Pod
from phalanx.kube.objects.queue import VolcanoQueue

WORKERS = 2
POD = {"apiVersion": "v1", "kind": "Pod"}
QUEUE = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}


INITIALLY_SCHEDULED = {
    "podgroups": "PodGroupInitiallyScheduled",
    "compositepodgroups": "CompositePodGroupInitiallyScheduled",
}
"""The conditions of Kubernetes' own groups that say whether they have started."""

KINDS = {
    "podgroups": "PodGroup",
    "compositepodgroups": "CompositePodGroup",
    "jobs": "Job",
    "jobsets": "JobSet",
    "rayclusters": "RayCluster",
    **{f"{kind.lower()}s": kind for kind in KUBEFLOW_KINDS},
}
"""The kinds of groups that are objects, by how they are called in paths."""


class Reporter:
    """Says of each pod and group what it waits for. What cannot be written is left: it is said again when it changes.

    `groups` are the paths of the groups of each dialect. Of each object only the newest line is written, by one thread
    at a time: while thousands of pods come, what a gang waits for changes with every one of them.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self.groups: dict[str, str] = {}
        self._told: dict[str, str] = {}
        self._newest: dict[str, Callable[[], None]] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="report")

    def pending(self, pod: Pod, message: str) -> None:
        """The pod waits for this."""
        if self._told.get(pod.metadata.uid) != message:
            self._told[pod.metadata.uid] = message
            self._say(pod.metadata.uid, partial(self._write, pod, message[:MESSAGE_MAX]))

    def group_pending(self, group: GroupRef, metadata: Metadata, message: str) -> None:
        """The gang of a group waits for this."""
        path = self.groups.get(group.dialect, "")
        if path.rpartition("/")[2] in KINDS and metadata.uid and self._told.get(metadata.uid) != message:
            self._told[metadata.uid] = message
            self._say(metadata.uid, partial(self._write_group, path, metadata, message[:MESSAGE_MAX]))

    def group_started(self, group: GroupRef, metadata: Metadata) -> None:
        """The gang of a group is bound."""
        self._told.pop(metadata.uid, None)
        if group.dialect in (NATIVE, COMPOSITE) and group.dialect in self.groups:
            path = self.groups[group.dialect]
            self._say(metadata.uid, partial(self._condition, path, metadata, "True", "Scheduled", ""))

    def conflicts(self, queues: Mapping[str, VolcanoQueue], conflicts: Mapping[str, str]) -> None:
        """What queues say does not hold."""
        for name, message in conflicts.items():
            metadata = queues[name].metadata if name in queues else None
            if metadata is not None and self._told.get(metadata.uid) != message:
                self._told[metadata.uid] = message
                self._pool.submit(self._event, QUEUE, metadata, "Warning", "QuotaConflict", message)

    def preempted(self, pod: Pod, message: str) -> None:
        """The pod is ended for another job."""
        self._pool.submit(self._event, POD, pod.metadata, "Normal", "Preempted", message[:MESSAGE_MAX])

    def forget(self, uid: str) -> None:
        """The pod is gone, or runs."""
        self._told.pop(uid, None)

    def close(self) -> None:
        """Drops what is not yet written."""
        self._pool.shutdown(cancel_futures=True)

    def _say(self, uid: str, write: Callable[[], None]) -> None:
        with self._lock:
            is_queued = uid in self._newest
            self._newest[uid] = write
        if not is_queued:
            self._pool.submit(self._write_newest, uid)

    def _write_newest(self, uid: str) -> None:
        while True:
            with self._lock:
                write = self._newest[uid]
            write()
            with self._lock:
                if self._newest[uid] is write:
                    del self._newest[uid]
                    return

    def _write(self, pod: Pod, message: str) -> None:
        try:
            try:
                self._patch(pod, message)
            except ConflictError:
                self._patch(self._client.get(_path(pod), Pod), message)
        except ApiError:
            self._told.pop(pod.metadata.uid, None)
            return
        self._event(POD, pod.metadata, "Warning", "FailedScheduling", message)

    def _write_group(self, path: str, metadata: Metadata, message: str) -> None:
        """An event on any group; on Kubernetes' own also the condition that it has for this."""
        prefix, _, plural = path.rpartition("/")
        if f"/{NATIVE}/" in path:
            self._condition(path, metadata, "False", "Unschedulable", message)
        of = {"apiVersion": prefix.removeprefix("/apis/"), "kind": KINDS[plural]}
        self._event(of, metadata, "Warning", "FailedScheduling", message)

    def _patch(self, pod: Pod, message: str) -> None:
        """Writes the condition, unless the pod is another than it was: one that is bound by now keeps its own."""
        if pod.spec.node_name:
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": written(datetime.now(UTC)),
        }
        version = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
        self._client.patch(f"{_path(pod)}/status", {"metadata": version, "status": {"conditions": [condition]}})

    def _condition(self, path: str, metadata: Metadata, status: str, reason: str, message: str) -> None:
        prefix, _, plural = path.rpartition("/")
        condition = {
            "type": INITIALLY_SCHEDULED[plural],
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": written(datetime.now(UTC)),
        }
        target = f"{prefix}/namespaces/{metadata.namespace}/{plural}/{metadata.name}/status"
        with contextlib.suppress(ApiError):
            self._client.patch(target, {"status": {"conditions": [condition]}})

    def _event(self, of: dict[str, str], metadata: Metadata, kind: str, reason: str, message: str) -> None:
        post_event(self._client, of, metadata, kind, reason, message)


def _path(pod: Pod) -> str:
    return f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
