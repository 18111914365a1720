"""What is created on the API server: nodes, pods and the groups that pods are of."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import NotFoundError
from phalanx.kube.objects.meta import Stored, Wire

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
GPU = "nvidia.com/gpu"
WORKERS = 4

Manifest = dict[str, Any]


class Existing(Wire, frozen=True):
    """What there is of a kind."""

    items: list[Stored] | None = None


def node(name: str, gpus: int = 8, port: int = 0) -> Manifest:
    """A node with GPUs that is ready. With a port, that is where its kubelet answers on this machine."""
    has = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(gpus)}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    address = {"type": "InternalIP", "address": "127.0.0.1"}
    reached = {"addresses": [address], "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}} if port else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"capacity": has, "allocatable": has, "conditions": [ready], **reached},
    }


def group(name: str, count: int) -> Manifest:
    """A native gang."""
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": count}}},
    }


def pod(name: str, gpus: int, scheduler: str, of: str = "") -> Manifest:
    """A pod, of a native gang if one is named."""
    asks = {GPU: str(gpus)}
    resources = {"limits": asks, "requests": {"cpu": "1", "memory": "1Gi", **asks}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "main", "image": "none", "resources": resources}],
            **({"schedulingGroup": {"podGroupName": of}} if of else {}),
        },
    }


def create(api: Client, path: str, objects: Iterable[Manifest]) -> None:
    """Creates objects of one kind, several at a time, begun in this order."""
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(lambda each: api.post(path, each), objects))


def clear(api: Client, *paths: str) -> None:
    """Deletes all objects of some kinds, several at a time: one request for all takes longer than any may."""
    for path in paths:
        names = [each.metadata.name for each in api.get(path, Existing).items or ()]
        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(lambda name, path=path: _delete(api, f"{path}/{name}"), names))


def _delete(api: Client, path: str) -> None:
    try:
        if path.startswith(GROUPS):
            # No controller takes off finalizers here.
            api.patch(path, {"metadata": {"finalizers": None}}, "merge-patch")
        api.delete(path, {"gracePeriodSeconds": 0})
    except NotFoundError:
        return
