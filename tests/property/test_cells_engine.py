"""The engine with virtual clusters under random interleavings: all that holds without them, and the guarantee."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from test_engine_properties import NUMBERS, OFTEN, Engine

from builders import a_job, everything
from phalanx.cluster.cluster import Cluster
from phalanx.cluster.formats.native import read_cluster
from phalanx.engine.decide.cycle import decide
from phalanx.engine.fold import snapshot
from phalanx.engine.fold.check_cells import check_job
from phalanx.engine.state.journal import Journal
from phalanx.engine.turn import replay
from phalanx.placement.cells.ask import LAZY_LABEL, PINNED_LABEL, request_of
from phalanx.protocol.event import ClusterChanged
from phalanx.protocol.plan import Claim, Plan
from phalanx.protocol.reason import Reason
from phalanx.workload.gang import ANYWHERE, Gang, Role, Task, Topology
from phalanx.workload.job import Job, Kind

CLUSTERS = {
    "small": """
nodes: [{name: n, count: 3, gpus: 4}]
virtual_clusters:
  a: {cells: [{level: node}]}
  b: {cells: [{level: gpu, count: 3}], borrow_limit: 4}
  c: {cells: [{level: node}]}
""",
    "deep": """
levels: [pod, rack, node]
nodes:
- {name: n, count: 2, gpus: 2, cpus: 4, pod: p0, rack: r0}
- {name: m, count: 2, gpus: 2, cpus: 4, pod: p0, rack: r1}
- {name: o, count: 2, gpus: 2, cpus: 4, pod: p1, rack: r2}
- {name: q, count: 2, gpus: 2, cpus: 4, pod: p1, rack: r3}
virtual_clusters:
  a: {cells: [{level: rack}]}
  b: {cells: [{level: node, count: 2}, {level: gpu}]}
  c: {cells: [{level: node}], pinned: [r3]}
""",
    "mixed": """
levels: [rack, node, socket]
gpu_types: {A: {memory_gb: 40}, B: {memory_gb: 80}}
nodes:
- {name: a, count: 2, gpus: 4, gpu_type: A, cpus: 8, rack: r0, split: {socket: 2}, labels: {zone: x}}
- {name: b, count: 2, gpus: 4, gpu_type: B, cpus: 4, rack: r1, split: {socket: 2}}
- {name: t, gpus: 2, gpu_type: B, cpus: 16, rack: r1, split: {socket: 1}, taints: [{key: t}]}
virtual_clusters:
  a: {cells: [{level: node, gpu_type: A}, {level: socket, gpu_type: B}]}
  b: {cells: [{level: socket, gpu_type: A}, {level: node, gpu_type: B, gpus: 4}]}
  c: {borrow_limit: 2}
""",
    "cut": """
nodes: [{name: n, count: 2, gpus: 2, gpu_type: H100, cpus: 4}]
virtual_clusters:
  a: {cells: [{level: node}]}
  b: {cells: [{level: gpu}]}
  c: {cells: [{level: gpu}]}
""",
}

SMALLER = {
    "small": [("  a: {cells: [{level: node}]}", "  a: {cells: [{level: gpu, count: 4}]}")],
    "deep": [("  a: {cells: [{level: rack}]}", "  a: {cells: [{level: node}]}"), ("pinned: [r3]", "pinned: [r2]")],
    "mixed": [("{level: node, gpu_type: A}, ", ""), ("borrow_limit: 2", "borrow_limit: 4")],
    "cut": [
        ("  a: {cells: [{level: node}]}", "  a: {cells: [{level: gpu}]}"),
        ("  c: {cells: [{level: gpu}]}", "  c: {}"),
    ],
}
"""What of each cluster is written otherwise in its other configuration."""


def told(name: str, other: bool = False) -> Cluster:
    text = CLUSTERS[name]
    for old, new in SMALLER[name] if other else ():
        assert old in text
        text = text.replace(old, new)
    return read_cluster(text, name)


def anywhere(role: Role, shares: bool) -> Role:
    """The role with no closeness of its own, and on whole devices but where all of the gang shares them."""
    share = role.task.share if shares else None
    return replace(
        role,
        topology=ANYWHERE,
        task=replace(role.task, share=share, gpu_types=()),
        members=tuple(anywhere(member, shares) for member in role.members),
    )


class CellsEngine(Engine):
    """Guaranteed and opportunistic jobs of three virtual clusters."""

    policy = "fifo:skip=true"

    def cluster_of(self, name: str) -> Cluster:
        self.name, self.other = name, False
        return told(name)

    def loaded(self, i: int, gpus: int) -> Job:
        labels = ((LAZY_LABEL, "true"),) if i % 2 else ()
        return a_job(f"load{i}", min(gpus, 1), queue="cab"[i % 3], priority=-1 if i % 3 == 0 else i % 2, labels=labels)

    def dressed(self, data: st.DataObject, job: Job) -> Job:
        topology = job.gang.topology if data.draw(st.integers(0, 3)) == 0 else Topology()
        shares = all(task.share is not None for task in tasks(job))
        labels = data.draw(st.sampled_from([(), (), ((LAZY_LABEL, "true"),), ((PINNED_LABEL, "r3"),)]))
        return replace(
            job,
            gang=Gang(tuple(anywhere(role, shares) for role in job.gang.roles), topology),
            queue=data.draw(st.sampled_from("abc")),
            priority=data.draw(st.sampled_from([-1, -1, 0, 1, 5])),
            labels=labels,
        )

    def may_ever_have(self, job: Job) -> bool:
        try:
            check_job(self.state.cells, job)
        except ValueError:
            return False
        return True

    def check_victims(self, plan: Plan, before: list[object]) -> None:
        """Every victim is in the way: it holds, or was promised, something that the head gets."""
        state = replay(Journal(before))
        for claim in plan.claims:
            wanted = {(slot.node, device) for slot in claim.placement.slots for device in slot.devices}
            for key in claim.victims:
                job, _, number = key.rpartition("/")
                victim = state.attempt(job, int(number))
                had = {(slot.node, device) for slot in victim.placement.slots for device in slot.devices}
                assert wanted & had, f"{claim.job} stops {key} for nothing"

    def check_victims_may_be_stopped(self, head: Job, claim: Claim) -> None:
        """Opportunistic work gives way to everybody with a guarantee, the rest to higher priorities of its cluster."""
        assert head.priority >= 0 or not claim.victims
        for key in claim.victims:
            victim = self.state.jobs[key.rpartition("/")[0]].job
            if victim.priority < 0 or key in self.without_guarantee:
                continue
            assert victim.queue == head.queue, f"{head.id} stops {victim.id} of another cluster"
            assert victim.priority < head.priority
            assert victim.preemptible
            assert victim.kind is not Kind.SERVICE

    def decide(self) -> None:
        groups = self.state.cells.cells.groups()
        self.without_guarantee = {group.name for group in groups if not group.is_guaranteed}
        super().decide()

    @rule(then_decide=OFTEN)
    def reconfigure(self, then_decide: bool) -> None:
        """The site is described otherwise: what runs goes on, with or without its guarantee."""
        self.other = not self.other
        running = {attempt.key for attempt in self.state.attempts() if attempt.started_ms >= 0}
        self.happen(ClusterChanged(told(self.name, self.other)), then_decide=False)
        assert running <= {attempt.key for attempt in self.state.attempts()}, "a change of cells has stopped somebody"
        assert not [key for key in self.state.to_stop if self.state.to_stop[key] == "preempted"]
        if then_decide:
            self.decide()

    @rule(number=NUMBERS)
    def snapshot(self, number: int) -> None:
        """A State that was written and read back goes on as the one that was not."""
        if number % 10 == 0:
            back = snapshot.load(snapshot.dump(self.state))
            assert everything(back) == everything(self.state)
            assert decide(back, self.state.now) == decide(self.state, self.state.now)

    @invariant()
    def everybody_can_have_what_is_owed(self) -> None:
        if hasattr(self, "state"):
            self.state.cells.check(self.state.attempts())

    def check_who_is_left_can_never_run(self) -> None:
        """With everything idle and healthy, who still waits does so for more than others have taken."""
        for name, each in self.state.jobs.items():
            if each.final is None and each.parked is None:
                assert self.state.reason(name) is not Reason.UNHEALTHY
                hopeless = each.asked.gang.topology.required or each.job.node_selector or self.is_hopeless(each.job)
                assert hopeless, f"{name} waits for {self.state.reason(name)}: {each.asked}"

    def is_hopeless(self, job: Job) -> bool:
        """Whether CPUs, memory of GPUs or taints are in the way, or the present configuration."""
        return (
            not self.may_ever_have(job)
            or any(task.cpus_milli or task.cpus_limit_milli or task.gpu_memory_gb or task.nics for task in tasks(job))
            or self.state.reason(job.id) in (Reason.QUOTA, Reason.NEVER_FITS)
            or not any(can_be_packed(request_of(job).sizes[::-1], homes) for homes in self.homes(job))
        )

    def homes(self, job: Job) -> list[list[int]]:
        """What a gang of the job's cluster sees as nodes, by their sizes, for each place it could be in as a whole."""
        estate = self.state.cells.cells.estate
        if job.priority < 0:
            return [[node.chain.leaves[node.level] for node in chain.nodes] for chain in estate.chains.values()]
        cluster = estate.clusters[job.queue]
        pools = [*cluster.pools.values(), *cluster.pinned.values()]
        return [[home.leaf_count for home in pool.view.nodes] for pool in pools]


def can_be_packed(sizes: list[int], homes: list[int]) -> bool:
    """Whether tasks, the largest first, find room in homes: all ways are tried."""
    if not sizes:
        return True
    return any(
        room >= sizes[0] and can_be_packed(sizes[1:], [*homes[:i], room - sizes[0], *homes[i + 1 :]])
        for i, room in enumerate(homes)
        if room not in homes[:i]
    )


def tasks(job: Job) -> list[Task]:
    def walk(role: Role) -> list[Task]:
        return [each for member in role.members for each in walk(member)] if role.members else [role.task]

    return [each for role in job.gang.roles for each in walk(role)]


class StrictCellsEngine(CellsEngine):
    policy = "fifo"


class PriorityCellsEngine(CellsEngine):
    policy = "priority"


class LasCellsEngine(CellsEngine):
    policy = "las:quantum=5"


class DrfCellsEngine(CellsEngine):
    policy = "drf:weights=a:2"


class BackfillCellsEngine(CellsEngine):
    policy = "backfill"


TestCells = CellsEngine.TestCase
TestStrictCells = StrictCellsEngine.TestCase
TestPriorityCells = PriorityCellsEngine.TestCase
TestLasCells = LasCellsEngine.TestCase
TestDrfCells = DrfCellsEngine.TestCase
TestBackfillCells = BackfillCellsEngine.TestCase
TestCells.settings = settings(max_examples=30, stateful_step_count=40)
TestStrictCells.settings = TestPriorityCells.settings = settings(max_examples=15, stateful_step_count=40)
TestLasCells.settings = TestDrfCells.settings = TestBackfillCells.settings = settings(
    max_examples=10, stateful_step_count=40
)
for each in (TestPriorityCells, TestBackfillCells):
    pytest.mark.long(each)


@pytest.mark.parametrize("name", sorted(CLUSTERS))
def test_both_configurations_of_every_cluster_can_be_read(name: str) -> None:
    assert told(name).cells != told(name, other=True).cells
