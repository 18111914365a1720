"""Queueing delay of tenants in three worlds: each alone on its own nodes, sharing by quota, and sharing by cells.

This is the experiment of HiveD's introduction, on a synthetic load of the same size: 2,232 GPUs, 11 tenants, two
months. A quota counts GPUs, so a tenant may be within it and find no node whole; a cell is a whole node or part of
one, and can always be had. All three worlds place with the same packing, and each tenant's jobs start in their order.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from phalanx.bench.cells.tenants import GPUS_PER_NODE, Tenant, Work, jobs_of, tenants
from phalanx.bench.row import Row, Tell, quantile, ratio, row
from phalanx.cluster.cells import CellSite, CellType, PhysicalSpec, VirtualClusterSpec, VirtualSpec
from phalanx.placement.cells.cells import Cells
from phalanx.placement.cells.request import Request

PAPER_RATIO = 7.0
"""How many times longer a tenant waited when sharing by quota than alone (HiveD, figure 1)."""

TYPES = {
    "SWITCH": CellType("SWITCH", "GPU", 2),
    "SOCKET": CellType("SOCKET", "SWITCH", 2),
    "NODE": CellType("NODE", "SOCKET", 2, is_node=True),
}


@dataclass(frozen=True, slots=True)
class Setup:
    """How long, and by how much the site is smaller than the real one."""

    days: int
    shrink: int


FULL = Setup(days=60, shrink=1)
QUICK = Setup(days=6, shrink=9)


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


class ByQuotaPacked:
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


class ByQuotaSpread:
    """A count of GPUs for each tenant, and the emptiest node first, which is what Kubernetes does by default."""

    def __init__(self, owners: Sequence[Tenant]) -> None:
        self.left = {tenant.name: tenant.nodes * GPUS_PER_NODE for tenant in owners}
        self.free = [GPUS_PER_NODE] * sum(tenant.nodes for tenant in owners)
        self.with_free: list[dict[int, None]] = [{} for _ in range(GPUS_PER_NODE)]
        self.with_free.append(dict.fromkeys(range(len(self.free))))
        self.places: dict[str, list[tuple[int, int]]] = {}

    def start(self, work: Work) -> bool:
        if self.left[work.tenant] < work.gpus:
            return False
        places: list[tuple[int, int]] = []
        for member in work.members:
            for _ in range(member.pods):
                node = self._emptiest(member.leaves)
                if node is None:
                    self._give(places)
                    return False
                self._change(node, -member.leaves)
                places.append((node, member.leaves))
        self.places[work.name] = places
        self.left[work.tenant] -= work.gpus
        return True

    def end(self, work: Work) -> None:
        self._give(self.places.pop(work.name))
        self.left[work.tenant] += work.gpus

    def _emptiest(self, least: int) -> int | None:
        nodes = (nodes for nodes in reversed(self.with_free[least:]) if nodes)
        return next((next(iter(found)) for found in nodes), None)

    def _give(self, places: list[tuple[int, int]]) -> None:
        for node, gpus in places:
            self._change(node, gpus)

    def _change(self, node: int, more: int) -> None:
        del self.with_free[self.free[node]][node]
        self.free[node] += more
        self.with_free[self.free[node]][node] = None


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
    rows = [row("sharing: jobs", len(jobs), "jobs"), row("sharing: GPUs", gpus, "GPUs"), *_rows("alone", alone)]
    for name, world in WORLDS.items():
        tell(f"sharing: {name}")
        delays = delays_ms(world(owners), jobs)
        target = 1.0 if name == BY_CELLS else None
        rows += _rows(name, delays)
        rows.append(
            row(f"sharing: mean delay, {name} / alone", ratio(_mean_of(delays), _mean_of(alone)), "ratio", target)
        )
        rows.append(row(f"sharing: delay of the worst tenant, {name} / alone", _worst(delays, alone), "ratio", target))
    rows.append(row("sharing: delay by quota / alone, in HiveD's paper", PAPER_RATIO, "ratio"))
    return rows


BY_CELLS = "by cells"
WORLDS: dict[str, Callable[[Sequence[Tenant]], World]] = {
    "by quota, spread": ByQuotaSpread,
    "by quota, packed": ByQuotaPacked,
    BY_CELLS: ByCells,
}


def _rows(name: str, delays: dict[str, list[int]]) -> list[Row]:
    every = [wait for waits in delays.values() for wait in waits]
    return [
        row(f"sharing: mean delay, {name}", _mean_of(delays), "min"),
        row(f"sharing: 99th percentile of delay, {name}", (quantile(every, 0.99) or 0) / 60_000, "min"),
    ]


def _mean_of(delays: dict[str, list[int]]) -> float:
    return _mean_min([wait for waits in delays.values() for wait in waits])


def _worst(delays: dict[str, list[int]], alone: dict[str, list[int]]) -> float | None:
    """The worst tenant's mean delay in units of its delay alone. Tenants below a minute alone do not count."""
    means = {name: _mean_min(waits) for name, waits in alone.items()}
    ratios = [ratio(_mean_min(delays[name]), mean) for name, mean in means.items() if mean >= 1]
    return max((each for each in ratios if each is not None), default=None)


def _mean_min(waits_ms: Sequence[int]) -> float:
    return sum(waits_ms) / len(waits_ms) / 60_000 if waits_ms else 0.0
