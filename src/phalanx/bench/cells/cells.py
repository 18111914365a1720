"""The benchmark of cells: random histories, long and on large sites, with the guarantee asserted after every step."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from phalanx.bench.clock import timed_us
from phalanx.bench.row import Row, Tell, ratio, row
from phalanx.cluster.cells import CellError, CellSite, CellType, PhysicalSpec, VirtualClusterSpec, VirtualSpec
from phalanx.placement.cells.cells import Cells
from phalanx.placement.cells.group import GroupState
from phalanx.placement.cells.request import Member, Request

NODES_IN_RACK = 10
STEPS_PER_CHECK = 20_000
"""The guarantee is asserted at every step; every count and index is worked out anew now and then."""

TYPES = {
    "SWITCH": CellType("SWITCH", "GPU", 2),
    "SOCKET": CellType("SOCKET", "SWITCH", 2),
    "NODE": CellType("NODE", "SOCKET", 2, is_node=True),
    "RACK": CellType("RACK", "NODE", NODES_IN_RACK),
}
OWNED = ((("RACK", 1),), (("NODE", 4), ("SOCKET", 3)), (("NODE", 2), ("SWITCH", 3), ("GPU", 5)))
"""What clusters own of a rack of hardware, in turn."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Steps on each size of site, in nodes."""

    sizes: tuple[tuple[int, int], ...]


FULL = Setup(((10, 100_000), (100, 400_000), (1000, 500_000)))
QUICK = Setup(((10, 300), (100, 300)))


def site(nodes: int) -> CellSite:
    """Racks of ten nodes of eight GPUs; clusters own racks, nodes, sockets, switches and single GPUs of them."""
    racks = max(nodes // NODES_IN_RACK, 1)
    clusters = max(2, min(30, racks))
    physical = tuple(_cell("RACK", f"r{rack}", rack) for rack in range(racks))
    owned: list[dict[str, int]] = [{} for _ in range(clusters)]
    # A site of one rack is shared by two clusters; of more, every rack goes to one, in turn.
    shares = [OWNED[1], OWNED[2]] if racks == 1 else [OWNED[rack % len(OWNED)] for rack in range(racks)]
    for number, cells in enumerate(shares):
        mine = owned[number % clusters]
        for kind, count in cells:
            mine[kind] = mine.get(kind, 0) + count
    specs = tuple(
        VirtualClusterSpec(f"vc{i}", tuple(VirtualSpec("RACK", kind, count) for kind, count in cells.items()))
        for i, cells in enumerate(owned)
        if cells
    )
    return CellSite(TYPES, physical, specs)


def _cell(kind: str, address: str, number: int) -> PhysicalSpec:
    if kind not in TYPES:
        return PhysicalSpec(kind, address)
    spec = TYPES[kind]
    first = 0 if spec.is_node else number * spec.child_count
    children = []
    for i in range(spec.child_count):
        child = f"n{first + i}" if TYPES.get(spec.child, spec).is_node and spec.child == "NODE" else str(first + i)
        children.append(_cell(spec.child, child, first + i))
    return PhysicalSpec(kind, address, "", tuple(children))


KINDS = ("arrive", "leave", "proceed", "health", "reconfigure")
WEIGHTS = (50, 40, 5, 5, 0.005)
"""How often each kind of step is taken."""


class Walk:
    """A random history. Its state is what the cells know; groups are chosen by chance from it."""

    def __init__(self, nodes: int, seed: int, weights: tuple[float, ...] = WEIGHTS) -> None:
        self.weights = weights
        self.site = site(nodes)
        self.cells = Cells(self.site)
        self.random = random.Random(seed)
        self.clusters = [spec.name for spec in self.site.virtual_clusters]
        self.names = list(self.cells.estate.nodes)
        self.alive: list[str] = []
        self.bad: list[str] = []
        self.number = 0
        self.counts: dict[str, int] = {}

    def step(self) -> None:
        """One of: a gang comes, one goes, a preemptor goes on or gives up, a node breaks or heals, the site changes."""
        what = self.random.choices(KINDS, self.weights)[0] if self.alive else "arrive"
        match what:
            case "arrive":
                self._arrive()
            case "leave":
                self._leave(self.random.randrange(len(self.alive)))
            case "proceed":
                self._proceed()
            case "health":
                self._change_health()
            case _:
                self._reconfigure()

    def _arrive(self) -> None:
        draw = self.random
        self.number += 1
        leaves = draw.choice((1, 1, 2, 4, 8))
        request = Request(
            f"g{self.number}",
            draw.choice(self.clusters),
            (Member(draw.choice((1, 1, 1, 2, 4)), leaves),),
            draw.choice((-1, -1, 0, 1, 1, 2, 10)),
            lazy_preemption=draw.random() < 0.5,
        )
        try:
            outcome = self.cells.schedule(request)
        except CellError:
            self._count("refused")
            return
        for name in outcome.cancelled:
            self._forget(name)
        if outcome.group is None:
            self._count("waits")
            return
        self._count("preempts" if outcome.victims else "starts")
        self.alive.append(request.group)

    def _leave(self, at: int) -> None:
        name = self.alive[at]
        self._count("cancels" if self.cells.group(name).state is GroupState.PREEMPTING else "ends")
        self.cells.remove(name)
        self.alive[at] = self.alive[-1]
        self.alive.pop()

    def _proceed(self) -> None:
        """A pod is asked for again; a preemptor's victims go first, and then it has its place."""
        name = self.random.choice(self.alive)
        for victim in self.cells.proceed(name):
            self._forget(victim.name)
            self.cells.remove(victim.name)
        assert not self.cells.proceed(name), "with its victims gone a preemptor has its place"
        self._count("proceeds")

    def _change_health(self) -> None:
        # Broken nodes are few, as they are in life.
        if self.bad and (self.random.random() < 0.5 or len(self.bad) > 1 + len(self.names) // 50):
            name = self.bad.pop(self.random.randrange(len(self.bad)))
            self.cells.set_health(name, True)
            self._count("heals")
        else:
            name = self.random.choice(self.names)
            self.cells.set_health(name, False)
            if name not in self.bad:
                self.bad.append(name)
            self._count("fails")

    def _reconfigure(self) -> None:
        """Clusters swap what they own, and what runs goes on."""
        owned = [spec.cells for spec in self.site.virtual_clusters]
        self.random.shuffle(owned)
        specs = zip(self.site.virtual_clusters, owned, strict=True)
        clusters = tuple(VirtualClusterSpec(spec.name, cells) for spec, cells in specs)
        self.site = CellSite(TYPES, self.site.physical, clusters)
        new = Cells(self.site)
        new.adopt(self.cells)
        self.cells = new
        self.alive = [group.name for group in new.groups()]
        self._count("reconfigures")

    def _forget(self, name: str) -> None:
        at = self.alive.index(name)
        self.alive[at] = self.alive[-1]
        self.alive.pop()

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


def run(setup: Setup, tell: Tell) -> list[Row]:
    """Steps per second by size, what the steps were, and what size costs."""
    rows: list[Row] = []
    step_us: dict[int, float] = {}
    for nodes, steps in setup.sizes:
        tell(f"cells: {steps} steps on {nodes} nodes")
        walk = Walk(nodes, seed=nodes)
        total_us, _ = timed_us(_steps(walk, steps))
        step_us[nodes] = total_us / steps
        rows.append(row(f"cells: steps per second, {nodes} nodes", 1e6 / step_us[nodes], "steps/s"))
        rows.extend(
            row(f"cells: {what} in {steps} steps, {nodes} nodes", count, "steps")
            for what, count in sorted(walk.counts.items())
        )
    least, most = min(step_us), max(step_us)
    rows.append(row(f"cells: a step on {most} nodes / on {least}", ratio(step_us[most], step_us[least]), "ratio"))
    rows.append(row("cells: steps", sum(steps for _, steps in setup.sizes), "steps"))
    return rows


def _steps(walk: Walk, steps: int) -> Callable[[], None]:
    def go() -> None:
        for number in range(steps):
            walk.step()
            if number % STEPS_PER_CHECK == 0:
                walk.cells.check()
        walk.cells.check()

    return go
