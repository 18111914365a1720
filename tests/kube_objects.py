"""Kubernetes objects for tests, in the form in which they go over the wire."""

from __future__ import annotations

from typing import Any

import msgspec

from phalanx.kube.objects.group import PodGroup
from phalanx.kube.objects.node import KubeNode
from phalanx.kube.objects.pod import Pod

PLUGINS_LABEL = "scheduling.x-k8s.io/pod-group"


def node(name: str, gpus: int = 8, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A node that is ready."""
    has = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec,
        "status": {
            "capacity": has,
            "allocatable": has,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def pod(name: str, gpus: int = 1, group: str = "", namespace: str = "default", **spec: Any) -> dict[str, Any]:
    """A pod for phalanx, of a group of scheduler-plugins if one is named."""
    resources = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    container = {
        "name": "main",
        "image": "none",
        "resources": {"limits": resources, "requests": {"cpu": "1", "memory": "1Gi", **resources}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {PLUGINS_LABEL: group} if group else {}},
        "spec": {"schedulerName": "phalanx", "containers": [container], "terminationGracePeriodSeconds": 1, **spec},
    }


def group(name: str, least: int, namespace: str = "default") -> dict[str, Any]:
    """A PodGroup of scheduler-plugins."""
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minMember": least},
    }


def as_node(written: dict[str, Any]) -> KubeNode:
    """A node as it is received."""
    return msgspec.convert(written, KubeNode)


def as_pod(written: dict[str, Any], uid: str = "", node: str = "", phase: str = "Pending", created: int = 0) -> Pod:
    """A pod as it is received: with a uid, and on a node once it is bound."""
    metadata = {
        **written["metadata"],
        "uid": uid or f"uid-{written['metadata']['name']}",
        "creationTimestamp": f"2026-11-18T00:00:{created:02}Z",
    }
    spec = {**written["spec"], **({"nodeName": node} if node else {})}
    return msgspec.convert({**written, "metadata": metadata, "spec": spec, "status": {"phase": phase}}, Pod)


def as_group(written: dict[str, Any]) -> PodGroup:
    """A group as it is received."""
    return msgspec.convert(written, PodGroup)
