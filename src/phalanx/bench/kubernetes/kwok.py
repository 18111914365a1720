"""Nodes that kwok runs: it renews their leases as a kubelet would, and has their pods go through their phases."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from phalanx.bench.kubernetes.control_plane import ControlPlane, MissingProgramError, wait_until
from phalanx.bench.kubernetes.objects import NODES, create, node
from phalanx.kube.api.client import Client
from phalanx.kube.lease import LeaseObject
from phalanx.kube.objects.meta import Wire

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
LEASE_S = 40
"""How long the lease of a node holds, as by a kubelet; it is renewed after a quarter of that."""

CONFIGURATION = """\
apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  nodeLeaseParallelism: 16
  nodePlayStageParallelism: 16
  podPlayStageParallelism: 16
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: node-runs}
spec:
  resourceRef: {apiGroup: v1, kind: Node}
  selector: {matchExpressions: [{key: .status.phase, operator: DoesNotExist}]}
  next: {statusTemplate: "phase: Running"}
---
"""

PODS_RUN = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-runs}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector: {matchExpressions: [{key: .status.phase, operator: In, values: [Pending]}]}
  next: {statusTemplate: "phase: Running"}
"""
"""A pod that is bound runs at once, and does not end."""

LISTS_IN_PAGES = "--feature-gates=WatchList=false"
"""Has the API server refuse lists that come by a watch at once: kwok asks for them also where etcd is too old."""


class Leases(Wire, frozen=True):
    """The leases of nodes."""

    items: list[LeaseObject] | None = None


@dataclass(frozen=True, slots=True)
class NodesOfKwok:
    """So many nodes with GPUs, what becomes of their pods, and where on this machine logs are read, if anywhere."""

    count: int
    gpus: int = 8
    pods: str = PODS_RUN
    log_port: int = 0


@contextmanager
def nodes_of_kwok(plane: ControlPlane, api: Client, wanted: NodesOfKwok, within_s: float) -> Iterator[None]:
    """Nodes that kwok runs meanwhile. They have their leases when it begins."""
    program = plane.folder / "kwok"
    if not program.exists():
        raise MissingProgramError(f"kwok is needed in {plane.folder}: scripts/kube-cluster kwok")
    config = plane.root / "kwok.yaml"
    config.write_text(CONFIGURATION + wanted.pods)
    options = ("--config", config, "--manage-all-nodes", "--node-lease-duration-seconds", str(LEASE_S), "-v", "WARN")
    process = plane.spawn("kwok", program, "--kubeconfig", plane.kubeconfig, *options)

    def has_all() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"kwok ended:\n{plane.log('kwok')}")
        return held(api) == wanted.count

    try:
        create(api, NODES, (node(f"n{i:05}", wanted.gpus, wanted.log_port) for i in range(wanted.count)))
        wait_until("kwok has the leases of all nodes", has_all, within_s)
        yield
    finally:
        plane.end("kwok")


def held(api: Client) -> int:
    """How many nodes have a lease that holds at the moment: all processes here have one clock."""
    now = time.time()
    return sum(now - _renewed_at(each) < LEASE_S for each in api.get(LEASES, Leases).items or ())


def _renewed_at(lease: LeaseObject) -> float:
    written = lease.spec.renew_time
    return datetime.fromisoformat(written).timestamp() if written is not None else 0.0
