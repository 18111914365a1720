"""10,000 pods at once, on nodes that kwok runs: all are bound, all run, and the nodes' leases are renewed meanwhile."""

from __future__ import annotations

import time
from pathlib import Path

from phalanx.bench.kubernetes.bindings import watching
from phalanx.bench.kubernetes.contender import OURS, Contender, contenders, scheduling
from phalanx.bench.kubernetes.control_plane import ControlPlane
from phalanx.bench.kubernetes.kwok import held
from phalanx.bench.kubernetes.objects import GPU, GROUPS, PODS, clear, create, group, pod
from phalanx.bench.kubernetes.run import GANG, QUICK, running
from phalanx.bench.row import Row, Tell, row
from phalanx.kube.api.client import Client

NODE_COUNT, NODE_COUNT_QUICK = 1250, 4
"""Nodes of 8 GPUs, of which each pod takes one."""

WITHIN_S, WITHIN_QUICK_S = 540.0, QUICK.within_s


def flood(is_quick: bool, tell: Tell) -> list[Row]:
    """As many pods as there are GPUs come at once: until all are bound, and until all run."""
    nodes, within_s = (NODE_COUNT_QUICK, WITHIN_QUICK_S) if is_quick else (NODE_COUNT, WITHIN_S)
    rows = []
    with running(nodes) as (plane, api):
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
        expired = nodes - held(api)
    what = f"flood: {len(members)} pods of 1 {GPU} on {nodes} nodes that kwok runs: {contender.title}"
    return [
        row(f"{what}, until the last was created", created_s, "s"),
        row(f"{what}, until the last was bound", bound_s if is_bound else None, "s"),
        row(f"{what}, until the last ran", run_s if run else None, "s"),
        row(f"{what}, peak memory of the scheduler", memory_mb, "MB"),
        row(f"{what}, nodes whose lease ran out", expired, "nodes", 0.0 if contender is OURS else None),
    ]


def _peak_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0
