"""10,000 pods at once, on nodes that kwok runs: their pods go to Running, and their leases are renewed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from phalanx.bench.kubernetes.bindings import watching
from phalanx.bench.kubernetes.contender import OURS, Contender, contenders, scheduling
from phalanx.bench.kubernetes.control_plane import ControlPlane, MissingProgramError, wait_until
from phalanx.bench.kubernetes.objects import GPU, GROUPS, NODES, PODS, clear, create, group, node, pod
from phalanx.bench.kubernetes.run import GANG, QUICK, running
from phalanx.bench.row import Row, Tell, row
from phalanx.kube.api.client import Client
from phalanx.kube.lease import LeaseObject
from phalanx.kube.objects.meta import Wire

NODE_COUNT, NODE_COUNT_QUICK = 1250, 4
"""Nodes of 8 GPUs, of which each pod takes one."""

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
LEASE_S = 40
"""How long the lease of a node holds, as by a kubelet."""

STAGES = """\
apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options: {nodeLeaseParallelism: 16, nodePlayStageParallelism: 16, podPlayStageParallelism: 16}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: node-runs}
spec:
  resourceRef: {apiGroup: v1, kind: Node}
  selector: {matchExpressions: [{key: .status.phase, operator: DoesNotExist}]}
  next: {statusTemplate: "phase: Running"}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-runs}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector: {matchExpressions: [{key: .status.phase, operator: In, values: [Pending]}]}
  next: {statusTemplate: "phase: Running"}
"""
"""What kwok does with nodes and pods, beside the leases: a pod on a node runs at once."""

WITHIN_S, WITHIN_QUICK_S = 540.0, QUICK.within_s


LISTS_IN_PAGES = "--feature-gates=WatchList=false"
"""Has the API server refuse lists that come by a watch at once: kwok asks for them also where etcd is too old."""


class Leases(Wire, frozen=True):
    """The leases of nodes."""

    items: list[LeaseObject] | None = None


@contextmanager
def kwok(plane: ControlPlane) -> Iterator[Callable[[], bool]]:
    """Runs all nodes meanwhile. What is given says that it still does; it raises what kwok said if it has ended."""
    program = plane.folder / "kwok"
    if not program.exists():
        raise MissingProgramError(f"kwok is needed in {plane.folder}: scripts/kube-cluster kwok")
    config = plane.root / "kwok.yaml"
    config.write_text(STAGES)
    options = ("--config", config, "--manage-all-nodes", "--node-lease-duration-seconds", str(LEASE_S), "-v", "WARN")
    process = plane.spawn("kwok", program, "--kubeconfig", plane.kubeconfig, *options)

    def has_ended() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"kwok ended:\n{plane.log('kwok')}")
        return False

    try:
        yield has_ended
    finally:
        plane.end("kwok")


def flood(is_quick: bool, tell: Tell) -> list[Row]:
    """As many pods as there are GPUs come at once: until all are bound, and until all run."""
    nodes, within_s = (NODE_COUNT_QUICK, WITHIN_QUICK_S) if is_quick else (NODE_COUNT, WITHIN_S)
    rows = []
    with running(LISTS_IN_PAGES) as (plane, api), kwok(plane) as has_ended:
        create(api, NODES, (node(f"n{i:05}") for i in range(nodes)))
        wait_until("kwok has the leases of all nodes", lambda: not has_ended() and len(_leases(api)) == nodes, within_s)
        for contender in contenders(plane):
            tell(f"flood: {nodes * 8} pods on {nodes} nodes that kwok runs: {contender.title}")
            rows += _rows(plane, api, contender, nodes, within_s)
            clear(api, PODS, GROUPS)
    return rows


def _rows(plane: ControlPlane, api: Client, contender: Contender, nodes: int, within_s: float) -> list[Row]:
    names = [f"g{i}" for i in range(nodes)]
    with watching(api) as bindings, scheduling(plane, contender) as (pid, _):
        began = time.monotonic()
        if contender.has_gangs:
            create(api, GROUPS, (group(name, GANG) for name in names))
        of = names if contender.has_gangs else [""] * nodes
        members = [
            pod(f"{name}-{i}", 1, contender.scheduler, each)
            for name, each in zip(names, of, strict=True)
            for i in range(GANG)
        ]
        create(api, PODS, members)
        created_s = time.monotonic() - began
        is_bound = bindings.wait_for(len(members), within_s)
        bound_s = max(bindings.at_s.values(), default=began) - began
        run = bindings.wait_until_run(len(members), within_s)
        run_s = time.monotonic() - began
        memory_mb = _peak_mb(pid)
        expired = nodes - len(_renewed(api))
    what = f"flood: {len(members)} pods of 1 {GPU} on {nodes} nodes that kwok runs: {contender.title}"
    return [
        row(f"{what}, until the last was created", created_s, "s"),
        row(f"{what}, until the last was bound", bound_s if is_bound else None, "s"),
        row(f"{what}, until the last ran", run_s if run else None, "s"),
        row(f"{what}, peak memory of the scheduler", memory_mb, "MB"),
        row(f"{what}, nodes whose lease ran out", expired, "nodes", 0.0 if contender is OURS else None),
    ]


def _leases(api: Client) -> list[LeaseObject]:
    return api.get(LEASES, Leases).items or []


def _renewed(api: Client) -> list[LeaseObject]:
    """The leases of nodes that hold at the moment: all processes here have one clock."""
    now = time.time()
    return [each for each in _leases(api) if now - _renewed_at(each) < LEASE_S]


def _renewed_at(lease: LeaseObject) -> float:
    written = lease.spec.renew_time
    return datetime.fromisoformat(written).timestamp() if written is not None else 0.0


def _peak_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0
