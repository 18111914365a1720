"""The reporter: writes why a pod waits as its condition and as an event, when that changes, beside everything else."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import ApiError, ConflictError
from phalanx.kube.objects.pod import Pod

WORKERS = 2
MESSAGE_MAX = 1000
COMPONENT = "phalanx"


class Reporter:
    """Says of each pod what it waits for. What cannot be written is left: it is said again when it changes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._told: dict[str, str] = {}
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="report")

    def pending(self, pod: Pod, message: str) -> None:
        """The pod waits for this."""
        if self._told.get(pod.metadata.uid) != message:
            self._told[pod.metadata.uid] = message
            self._pool.submit(self._write, pod, message[:MESSAGE_MAX])

    def preempted(self, pod: Pod, message: str) -> None:
        """The pod is ended for another job."""
        self._pool.submit(self._event, pod, "Normal", "Preempted", message[:MESSAGE_MAX])

    def forget(self, uid: str) -> None:
        """The pod is gone, or runs."""
        self._told.pop(uid, None)

    def close(self) -> None:
        """Drops what is not yet written."""
        self._pool.shutdown(cancel_futures=True)

    def _write(self, pod: Pod, message: str) -> None:
        try:
            try:
                self._patch(pod, message)
            except ConflictError:
                self._patch(self._client.get(_path(pod), Pod), message)
        except ApiError:
            self._told.pop(pod.metadata.uid, None)
            return
        self._event(pod, "Warning", "FailedScheduling", message)

    def _patch(self, pod: Pod, message: str) -> None:
        """Writes the condition, unless the pod is another than it was: one that is bound by now keeps its own."""
        if pod.spec.node_name:
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": _written(datetime.now(UTC)),
        }
        version = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
        self._client.patch(f"{_path(pod)}/status", {"metadata": version, "status": {"conditions": [condition]}})

    def _event(self, pod: Pod, kind: str, reason: str, message: str) -> None:
        now = _written(datetime.now(UTC))
        name, namespace = pod.metadata.name, pod.metadata.namespace
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name}.{time.time_ns():x}", "namespace": namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": name,
                "namespace": namespace,
                "uid": pod.metadata.uid,
            },
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": COMPONENT},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self._client.post(f"/api/v1/namespaces/{namespace}/events", event)
        except ApiError:
            return


def _written(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _path(pod: Pod) -> str:
    return f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
