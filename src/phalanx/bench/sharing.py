"""Queueing delay of tenants in three worlds: each alone on its own nodes, sharing by quota, and sharing by cells.

This is the experiment of HiveD's introduction, on a synthetic load of the same size: 2,232 GPUs, 11 tenants, two
months. A quota counts GPUs, so a tenant may be within it and find no node whole; a cell is a whole node or part of
one, and can always be had. All three worlds place with the same packing, and each tenant's jobs start in their order.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from phalanx.bench.row import Row, Tell, quantile, ratio, row
from phalanx.placement.cells.cells import Cells
from phalanx.placement.cells.request import Member, Request
from phalanx.workload.cells import CellSite, CellType, PhysicalSpec, VirtualClusterSpec, VirtualSpec

GPUS_PER_NODE = 8
DAY_MS = 86_400_000
PAPER_RATIO = 7.0
"""How many times longer a tenant waited when sharing by quota than alone (HiveD, figure 1)."""

TYPES = {
    "SWITCH": CellType("SWITCH", "GPU", 2),
    "SOCKET": CellType("SOCKET", "SWITCH", 2),
    "NODE": CellType("NODE", "SOCKET", 2, is_node=True),
}


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant: its nodes, how much of them its jobs keep busy, and how often they ask for how many GPUs."""

    name: str
    nodes: int
    load: float
    sizes: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Work:
    """One job."""

    name: str
    tenant: str
    submit_ms: int
    duration_ms: int
    gpus: int

    @property
    def members(self) -> tuple[Member, ...]:
        """Whole nodes for more than a node's GPUs."""
        if self.gpus <= GPUS_PER_NODE:
            return (Member(1, self.gpus),)
        return (Member(self.gpus // GPUS_PER_NODE, GPUS_PER_NODE),)


@dataclass(frozen=True, slots=True)
class Setup:
    """How long, and by how much the site is smaller than the real one."""

    days: int
    shrink: int


FULL = Setup(days=60, shrink=1)
QUICK = Setup(days=2, shrink=9)

SMALL = ((1, 0.80), (2, 0.12), (4, 0.06), (8, 0.02))
MIXED = ((1, 0.60), (2, 0.12), (4, 0.10), (8, 0.16), (16, 0.02))
LARGE = ((1, 0.20), (4, 0.10), (8, 0.50), (16, 0.14), (32, 0.06))


def tenants(shrink: int) -> tuple[Tenant, ...]:
    """Eleven tenants of 279 nodes: a few large ones, many small ones, and three whose jobs want whole nodes."""
    kinds = (
        (60, 0.90, SMALL),
        (54, 0.88, MIXED),
        (45, 0.92, SMALL),
        (36, 0.70, LARGE),
        (27, 0.90, MIXED),
        (18, 0.92, SMALL),
        (12, 0.55, LARGE),
        (9, 0.85, MIXED),
        (9, 0.90, SMALL),
        (5, 0.80, SMALL),
        (4, 0.40, ((1, 0.30), (8, 0.70))),
    )
    return tuple(
        Tenant(
            f"t{i}",
            max(nodes // shrink, 2),
            load,
            tuple((gpus, share) for gpus, share in sizes if gpus <= 16 or shrink == 1),
        )
        for i, (nodes, load, sizes) in enumerate(kinds)
    )


def jobs_of(tenant: Tenant, days: int, seed: int) -> list[Work]:
    """Jobs that come at random and are mostly short and sometimes very long, as training jobs are."""
    draw = random.Random(f"{seed}/{tenant.name}")
    sizes, shares = zip(*tenant.sizes, strict=True)
    limit = max(tenant.nodes * GPUS_PER_NODE // 2, GPUS_PER_NODE)
    mean_gpus = sum(min(size, limit) * share for size, share in tenant.sizes) / sum(shares)
    mean_hours = 4.0
    per_hour = tenant.load * tenant.nodes * GPUS_PER_NODE / (mean_gpus * mean_hours)
    jobs: list[Work] = []
    now = 0.0
    while True:
        now += draw.expovariate(per_hour) * 3_600_000
        if now >= days * DAY_MS:
            return jobs
        # A lognormal of median 0.54 hours and mean 4: sigma 2, as wide as published traces.
        hours = min(draw.lognormvariate(-0.614, 2.0), 96.0)
        gpus = min(draw.choices(sizes, shares)[0], limit)
        jobs.append(Work(f"{tenant.name}-{len(jobs)}", tenant.name, int(now), max(int(hours * 3_600_000), 1000), gpus))


class World(Protocol):
    """Where jobs run: starts one if it can, and takes it back."""

    def start(self, work: Work) -> bool: ...

    def end(self, work: Work) -> None: ...


class ByCells:
    """Every tenant owns its nodes as cells, anywhere in the shared cluster; one tenant alone is a private cluster."""

    def __init__(self, owners: Sequence[Tenant]) -> None:
        nodes = sum(tenant.nodes for tenant in owners)
        clusters = tuple(
            VirtualClusterSpec(tenant.name, (VirtualSpec("NODE", "NODE", tenant.nodes),)) for tenant in owners
        )
        self.cells = Cells(CellSite(TYPES, tuple(_node(i) for i in range(nodes)), clusters))

    def start(self, work: Work) -> bool:
        outcome = self.cells.schedule(Request(work.name, work.tenant, work.members, priority=0))
        return outcome.group is not None

    def end(self, work: Work) -> None:
        self.cells.remove(work.name)


class ByQuota:
    """One cluster that all own together, with a count of GPUs for each: the packing knows of no tenants."""

    def __init__(self, owners: Sequence[Tenant]) -> None:
        self.shared = ByCells([Tenant("all", sum(tenant.nodes for tenant in owners), 0.0, ())])
        self.left = {tenant.name: tenant.nodes * GPUS_PER_NODE for tenant in owners}

    def start(self, work: Work) -> bool:
        if self.left[work.tenant] < work.gpus or not self.shared.start(self._anonymous(work)):
            return False
        self.left[work.tenant] -= work.gpus
        return True

    def end(self, work: Work) -> None:
        self.shared.end(work)
        self.left[work.tenant] += work.gpus

    def _anonymous(self, work: Work) -> Work:
        return Work(work.name, "all", work.submit_ms, work.duration_ms, work.gpus)


def _node(number: int) -> PhysicalSpec:
    def grow(kind: str, first: int) -> PhysicalSpec:
        if kind not in TYPES:
            return PhysicalSpec(kind, str(first))
        spec = TYPES[kind]
        children = tuple(grow(spec.child, first * spec.child_count + i) for i in range(spec.child_count))
        return PhysicalSpec(kind, str(first), "", children)

    node = grow("NODE", 0)
    return PhysicalSpec("NODE", f"n{number}", "", node.children)


def delays_ms(world: World, jobs: Sequence[Work]) -> dict[str, list[int]]:
    """How long each job waited, by tenant. A tenant's jobs start in their order, and no tenant holds up another."""
    waits: dict[str, list[int]] = {work.tenant: [] for work in jobs}
    queues: dict[str, deque[Work]] = {name: deque() for name in waits}
    ends: list[tuple[int, int, Work]] = []
    serial = 0

    def start_heads(names: Sequence[str], now: int) -> None:
        nonlocal serial
        for name in names:
            queue = queues[name]
            while queue and world.start(queue[0]):
                work = queue.popleft()
                waits[name].append(now - work.submit_ms)
                serial += 1
                heapq.heappush(ends, (now + work.duration_ms, serial, work))

    names = list(queues)
    for work in sorted(jobs, key=lambda work: (work.submit_ms, work.name)):
        while ends and ends[0][0] <= work.submit_ms:
            now, _, ended = heapq.heappop(ends)
            world.end(ended)
            start_heads(names, now)
        queues[work.tenant].append(work)
        if len(queues[work.tenant]) == 1:
            start_heads([work.tenant], work.submit_ms)
    while any(queues.values()):
        now, _, ended = heapq.heappop(ends)
        world.end(ended)
        start_heads(names, now)
    return waits


def run(setup: Setup, tell: Tell) -> list[Row]:
    """Mean delays in each world, and the worst tenant's beside its delay alone."""
    owners = tenants(setup.shrink)
    jobs = [work for tenant in owners for work in jobs_of(tenant, setup.days, seed=7)]
    gpus = sum(tenant.nodes for tenant in owners) * GPUS_PER_NODE
    tell(f"sharing: {len(jobs)} jobs of {len(owners)} tenants on {gpus} GPUs, {setup.days} days")
    alone: dict[str, list[int]] = {}
    for tenant in owners:
        alone |= delays_ms(ByCells([tenant]), [work for work in jobs if work.tenant == tenant.name])
    worlds = {"alone": alone}
    for name, world in (("by quota", ByQuota(owners)), ("by cells", ByCells(owners))):
        tell(f"sharing: {name}")
        worlds[name] = delays_ms(world, jobs)
    means = {name: {tenant: _mean_min(waits) for tenant, waits in delays.items()} for name, delays in worlds.items()}
    rows = [row("sharing: jobs", len(jobs), "jobs"), row("sharing: GPUs", gpus, "GPUs")]
    for name, delays in worlds.items():
        every = [wait for waits in delays.values() for wait in waits]
        rows.append(row(f"sharing: mean delay, {name}", _mean_min(every), "min"))
        rows.append(row(f"sharing: 99th percentile of delay, {name}", (quantile(every, 0.99) or 0) / 60_000, "min"))
    for name in ("by quota", "by cells"):
        # A tenant that hardly waits alone has no ratio worth telling.
        ratios = [ratio(means[name][each], means["alone"][each]) for each in alone if means["alone"][each] >= 1]
        worst = max((each for each in ratios if each is not None), default=None)
        target = 1.0 + 1e-9 if name == "by cells" else None
        rows.append(row(f"sharing: delay of the worst tenant, {name} / alone", worst, "ratio", target))
    rows.append(row("sharing: delay of the worst tenant by quota / alone, as published by HiveD", PAPER_RATIO, "ratio"))
    return rows


def _mean_min(waits_ms: Sequence[int]) -> float:
    return sum(waits_ms) / len(waits_ms) / 60_000 if waits_ms else 0.0
