"""Random histories of cells beside an oracle that tries everything."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from phalanx.cluster.cells import CellError
from phalanx.compat.hived import HivedScheduler, Result
from phalanx.placement.cells.request import Member, Request
from phalanx.placement.cells.trees.estate import Estate
from phalanx.placement.cells.trees.memory import recall, remember
from reference.cells import Oracle, fits_privately

TYPES = {
    "SWITCH": {"childCellType": "GPU", "childCellNumber": 2},
    "NODE": {"childCellType": "SWITCH", "childCellNumber": 2, "isNodeLevel": True},
    "RACK": {"childCellType": "NODE", "childCellNumber": 2},
    "ROW": {"childCellType": "RACK", "childCellNumber": 2},
}
NODES = [f"n{i}" for i in range(8)]
LEVELS = ["ROW", "ROW.RACK", "ROW.RACK.NODE", "ROW.RACK.NODE.SWITCH", "ROW.RACK.NODE.SWITCH.GPU"]
SIZES = {"ROW": 16, "RACK": 8, "NODE": 4, "SWITCH": 2, "GPU": 1}
CLUSTERS = ["a", "b", "c"]


def site(owned: dict[str, list[str]]) -> dict[str, Any]:
    """Two rows of two racks of two nodes of four GPUs."""
    rows = []
    for row in range(2):
        names = NODES[4 * row : 4 * row + 4]
        racks = [{"cellChildren": [{"cellAddress": name} for name in names[i : i + 2]]} for i in (0, 2)]
        rows.append({"cellType": "ROW", "cellChildren": racks})
    clusters = {
        name: {"virtualCells": [{"cellType": kind, "cellNumber": 1} for kind in kinds]} for name, kinds in owned.items()
    }
    return {"physicalCluster": {"cellTypes": TYPES, "physicalCells": rows}, "virtualClusters": clusters}


@st.composite
def sites(draw: st.DrawFn) -> dict[str, Any]:
    """Owners of cells of any level, as long as the hardware has room for them."""
    owned: dict[str, list[str]] = {name: [] for name in CLUSTERS}
    for name in CLUSTERS:
        owned[name] = draw(st.lists(st.sampled_from(LEVELS[1:]), min_size=1, max_size=3))
    while True:
        config = site(owned)
        try:
            HivedScheduler(config)
        except ValueError:
            max(owned.values(), key=len).pop(0)
        else:
            return config


def gangs(draw: st.DrawFn) -> list[tuple[int, int]]:
    return draw(st.lists(st.tuples(st.integers(1, 2), st.sampled_from([1, 2, 3, 4])), min_size=1, max_size=2))


class CellsMachine(RuleBasedStateMachine):
    """Pods come and go, nodes break and heal, preemptors wait and give up, sites change: the promises hold."""

    @initialize(config=sites())
    def begin(self, config: dict[str, Any]) -> None:
        self.config = config
        self.scheduler = HivedScheduler(config)
        self.oracle = Oracle(config)
        self.bad: list[str] = []
        self.pods: dict[str, dict[str, Any]] = {}
        self.bound: list[str] = []
        self.waiting: list[str] = []
        self.next = 0

    def ask(self, name: str) -> Result | None:
        try:
            result = self.scheduler.schedule(self.pods[name])
        except ValueError:
            return None
        self.bound = [other for other in self.bound if other != name] + [name] * (result.kind == "bind")
        self.waiting = [other for other in self.waiting if other != name] + [name] * (result.kind != "bind")
        return result

    @rule(
        data=st.data(),
        cluster=st.sampled_from(CLUSTERS),
        priority=st.sampled_from([-1, -1, 0, 1, 1, 2, 5]),
        lazy=st.booleans(),
    )
    def submit(self, data: st.DataObject, cluster: str, priority: int, lazy: bool) -> None:
        members = data.draw(
            st.lists(st.tuples(st.integers(1, 2), st.sampled_from([1, 2, 3, 4])), min_size=1, max_size=2)
        )
        group = f"g{self.next}"
        self.next += 1
        names: list[str] = []
        for pods, leaves in members:
            for _ in range(pods):
                name = f"{group}-{len(names)}"
                names.append(name)
                self.pods[name] = {
                    "name": name,
                    "virtualCluster": cluster,
                    "priority": priority,
                    "leafCellNumber": leaves,
                    "lazyPreemptionEnable": lazy,
                    "affinityGroup": {
                        "name": group,
                        "members": [{"podNumber": count, "leafCellNumber": size} for count, size in members],
                    },
                }
        before = self.scheduler.virtual_cluster(cluster)
        results = [self.ask(name) for name in names]
        kinds = {result.kind if result is not None else "refused" for result in results}
        assert len(kinds) == 1, "a gang is placed as a whole"
        if priority >= 0 and not self.bad:
            sizes = [leaves for pods, leaves in members for _ in range(pods)]
            wanted = fits_privately(before, sizes, priority)
            got = kinds <= {"bind", "preempt"}
            assert got == wanted, "what a cluster is refused depends on nothing but what it owns and runs itself"

    @precondition(lambda self: self.bound)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        self.delete(data.draw(st.sampled_from(self.bound)))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def ask_again(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.waiting))
        result = self.ask(name)
        if result is not None and result.kind == "preempt":
            for victim in result.victims:
                self.delete(victim)
            after = self.ask(name)
            assert self.bad or (after is not None and after.kind == "bind"), "with its victims gone it has its place"

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        self.delete(data.draw(st.sampled_from(self.waiting)))

    def delete(self, name: str) -> None:
        self.scheduler.delete(name)
        self.bound = [other for other in self.bound if other != name]
        self.waiting = [other for other in self.waiting if other != name]

    @rule(node=st.sampled_from(NODES), healthy=st.booleans())
    def set_health(self, node: str, healthy: bool) -> None:
        self.scheduler.set_node_health(node, healthy)
        self.bad = [other for other in self.bad if other != node] + [node] * (not healthy)

    @rule(config=sites())
    def reconfigure(self, config: dict[str, Any]) -> None:
        held = {name: self.scheduler.schedule(self.pods[name]) for name in self.bound}
        self.scheduler = HivedScheduler(config, restore=self.scheduler)
        self.config = config
        for name, result in held.items():
            assert self.scheduler.schedule(self.pods[name]) == result, "who runs stays where it is"

    @rule(data=st.data())
    def try_and_take_back(self, data: st.DataObject) -> None:
        """Whatever is done in a trial is taken back to the last index of the last list."""
        cells = self.scheduler.cells
        before = fingerprint(cells.estate)
        with cells.trial():
            for number in range(data.draw(st.integers(1, 3))):
                step = data.draw(st.sampled_from(["schedule", "remove", "health"]))
                if step == "schedule":
                    self.schedule_directly(data, f"tried{number}")
                elif step == "remove" and cells.estate.groups:
                    cells.remove(data.draw(st.sampled_from(sorted(cells.estate.groups))))
                else:
                    cells.set_health(data.draw(st.sampled_from(NODES)), data.draw(st.booleans()))
        assert fingerprint(cells.estate) == before

    def schedule_directly(self, data: st.DataObject, name: str) -> None:
        members = (Member(data.draw(st.integers(1, 2)), data.draw(st.integers(1, 4))),)
        request = Request(name, data.draw(st.sampled_from(CLUSTERS)), members, data.draw(st.integers(-1, 5)))
        with suppress(CellError):
            self.scheduler.cells.schedule(request)

    @rule()
    def remember_and_recall(self) -> None:
        """What is remembered goes on as if nothing had happened."""
        before = fingerprint(self.scheduler.cells.estate)
        assert fingerprint(recall(remember(self.scheduler.cells)).estate) == before
        tenancy = self.scheduler.state.cells
        assert tenancy is not None
        tenancy.__setstate__(tenancy.__getstate__())
        assert fingerprint(self.scheduler.cells.estate) == before

    @invariant()
    def cells_say_the_truth(self) -> None:
        if hasattr(self, "scheduler"):
            self.scheduler.cells.check()

    @invariant()
    def promises_hold(self) -> None:
        if hasattr(self, "scheduler"):
            assert self.oracle.promises_hold(self.scheduler), "somebody could not have what it owns"


def fingerprint(estate: Estate) -> list[object]:
    """All that can change, in order."""
    found: list[object] = []
    for state in estate.chains.values():
        found.append([[cell.address for cell in cells] for cells in state.buddies.lists])
        found.append((state.owed, list(state.owed_all), state.view.ranks(), sorted(state.bad)))
        found.append([(key, [root.address for root in roots]) for key, roots in state.doomed.items() if roots])
        for top in state.tops:
            pending = [top]
            while pending:
                cell = pending.pop()
                pending.extend(cell.children)
                bound = cell.virtual.address if cell.virtual is not None else ""
                holders = [each.name if each is not None else "" for each in (cell.using, cell.reserving)]
                counts = (cell.opportunistic, cell.guaranteed, cell.bad_nodes, cell.idle_children)
                found.append((cell.address, cell.is_split, cell.priority, bound, holders, counts))
    for cluster in estate.clusters.values():
        for pool in cluster.pools.values():
            used = [{at: n for at, n in home.used_at.items() if n} for home in pool.view.nodes]
            found.append((pool.view.ranks(), used))
    groups = sorted(estate.groups.values(), key=lambda group: group.serial)
    found.append([(group.name, group.state, group.lazily_preempted_by) for group in groups])
    return deepcopy(found)


CellsMachine.TestCase.settings = settings(stateful_step_count=25)
TestCells = CellsMachine.TestCase


@given(st.data())
@settings(max_examples=60)
def test_owned_cells_can_be_had_in_every_order(data: st.DataObject) -> None:
    """Every cluster asks for all it owns, cell by cell, in an order drawn at random: all of it is bound."""
    config = data.draw(sites())
    wanted = [
        (name, cell["cellType"].split(".")[-1])
        for name, cluster in config["virtualClusters"].items()
        for cell in cluster["virtualCells"]
    ]
    scheduler = HivedScheduler(config)
    for number, (name, kind) in enumerate(data.draw(st.permutations(wanted))):
        leaves = min(SIZES[kind], SIZES["NODE"])
        pods = SIZES[kind] // leaves
        for i in range(pods):
            spec = {
                "name": f"p{number}-{i}",
                "virtualCluster": name,
                "leafCellNumber": leaves,
                "affinityGroup": {"name": f"g{number}", "members": [{"podNumber": pods, "leafCellNumber": leaves}]},
            }
            assert scheduler.schedule(spec).kind == "bind"
    scheduler.cells.check()
