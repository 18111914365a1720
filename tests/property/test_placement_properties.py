"""Seating gangs on clusters in any condition: whole or not at all, where they may be, and refused only for a cause."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import a_job
from judge import Judge, needs, parts
from phalanx.cluster.capacity import CPUS, Booking, Capacity
from phalanx.cluster.cluster import NODE, Health, Node, flat
from phalanx.cluster.topology import Topology as Tree
from phalanx.placement.bounds import Counting, supply_now
from phalanx.placement.fit import Fit
from phalanx.placement.gang import GangTrial
from phalanx.placement.pack import Packing
from phalanx.placement.place import ever, placement_of, refusal
from phalanx.placement.placement import Lack, Slot
from phalanx.workload.gang import Gang, Role, Topology
from phalanx.workload.job import Job, Kind
from strategies import CLUSTERS, jobs, tasks


@dataclass
class Room:
    """A cluster in some condition, and the same in plain words for the judge."""

    name: str
    judge: Judge = field(init=False)
    capacity: Capacity = field(init=False)
    free: dict[str, set[int]] = field(init=False)
    cpus: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        cluster = CLUSTERS[self.name]()
        self.judge = Judge(cluster)
        self.capacity = Capacity(Tree(cluster))
        self.free = {node.name: set(range(node.gpus)) for node in cluster.nodes}
        self.cpus = {node.name: node.cpus_milli for node in cluster.nodes}

    @property
    def fit(self) -> Fit:
        return Fit(self.capacity)

    def take(self, node: str, devices: set[int], cpus: int) -> None:
        number = self.capacity.topology.number[node]
        taken = devices & self.free[node]
        cpus = min(cpus, self.cpus[node])
        self.capacity.hold(Booking(number, sum(1 << device for device in taken), ((CPUS, cpus),) if cpus else ()))
        self.free[node] -= taken
        self.cpus[node] -= cpus

    def close(self, node: str, health: Health) -> None:
        self.capacity.set_health(self.capacity.topology.number[node], health)
        self.judge.health[node] = health
        self.free[node] = set() if health is not Health.HEALTHY else self.free[node]


@st.composite
def rooms(draw: st.DrawFn) -> Room:
    room = Room(draw(st.sampled_from(sorted(CLUSTERS))))
    for node in room.judge.cluster.nodes:
        devices = draw(st.sets(st.integers(0, 3), max_size=4))
        room.take(node.name, devices, draw(st.sampled_from([0, 0, 2_000, 7_000])))
        room.close(node.name, draw(st.sampled_from([Health.HEALTHY] * 6 + [Health.DRAINING])))
    return room


def seat(room: Room, job: Job) -> GangTrial | None:
    trial = GangTrial(room.fit, Packing(), job)
    return trial if trial.seat() else None


@given(st.data(), rooms())
@settings(max_examples=200)
def test_a_gang_is_seated_as_it_asks_or_leaves_no_trace(data: st.DataObject, room: Room) -> None:
    job = replace(data.draw(jobs(room.judge.cluster, "j")), array=None)
    before = room.capacity.fingerprint()
    trial = GangTrial(room.fit, Packing(), job)
    if trial.seat():
        placement = placement_of(trial)
        room.judge.check_placement(job, placement)
        for slot in placement.slots:
            assert set(slot.devices) <= room.free[slot.node]
            assert room.judge.health[slot.node] is Health.HEALTHY
        room.capacity.check()
    else:
        assert not trial.seats
    trial.undo()
    assert room.capacity.fingerprint() == before
    room.capacity.check()


def fits_in(room: Room, job: Job, role: Role, node: Node, devices: set[int]) -> int:
    """How many tasks of a role those devices of a node hold, when they are all free for it."""
    task = role.task
    if not room.judge.takes(job, task, node) or room.judge.health[node.name] is not Health.HEALTHY:
        return 0
    level = role.topology.required
    groups = parts(node, level) if level in room.judge.cluster.levels_inside else [devices]
    count = sum(len(group & devices) // task.gpus for group in groups) if task.gpus else role.replicas_max
    have = room.judge.totals(node)
    have["cpus"] = room.cpus[node.name]
    for name, amount in needs(task).items():
        count = min(count, have[name] // amount)
    return count


def most_in_one_domain(room: Room, job: Job, level: str) -> int:
    """The most tasks of a job of one role that any single domain of a level holds now."""
    cluster = room.judge.cluster
    role = job.gang.roles[0]
    if level in cluster.levels_inside:
        return max(
            fits_in(room, job, role, node, group & room.free[node.name])
            for node in cluster.nodes
            for group in parts(node, level)
        )
    domains: dict[object, int] = {}
    for node in cluster.nodes:
        at = room.judge.domain(Slot(0, "", node.name), level)
        domains[at] = domains.get(at, 0) + fits_in(room, job, role, node, room.free[node.name])
    return max(domains.values())


@st.composite
def plain_jobs(draw: st.DrawFn, room: Room, required: str | None = None, more: int | None = None) -> Job:
    """Jobs of one role of tasks."""
    cluster = room.judge.cluster
    least = draw(st.integers(1, 4))
    most = least + (draw(st.sampled_from([0, 0, 2])) if more is None else more)
    inside = draw(st.sampled_from(["", *cluster.levels_inside]))
    role = Role("w", least, most, draw(tasks(cluster, shared=False)), topology=Topology(inside))
    gang = Gang((role,), Topology(draw(st.sampled_from(["", *cluster.levels])) if required is None else required))
    return Job("j", gang, kind=draw(st.sampled_from([Kind.TRAINING, Kind.SERVICE])))


@given(st.data(), rooms())
@settings(max_examples=200)
def test_a_gang_of_one_role_is_refused_only_if_it_fits_nowhere(data: st.DataObject, room: Room) -> None:
    job = data.draw(plain_jobs(room))
    room_for = most_in_one_domain(room, job, job.gang.topology.required)
    trial = seat(room, job)
    assert (trial is not None) == (room_for >= job.gang.roles[0].replicas_min)


@given(st.data(), rooms())
def test_an_elastic_gang_that_may_lie_anywhere_gets_all_that_fits(data: st.DataObject, room: Room) -> None:
    job = data.draw(plain_jobs(room, required="", more=2))
    role = job.gang.roles[0]
    trial = seat(room, job)
    if trial is not None:
        assert len(trial.seats) == min(role.replicas_max, most_in_one_domain(room, job, ""))


@given(st.data(), rooms())
def test_a_gang_lies_in_one_domain_of_the_tightest_level_that_holds_it(data: st.DataObject, room: Room) -> None:
    job = data.draw(plain_jobs(room, required="", more=0))
    role = job.gang.roles[0]
    trial = seat(room, job)
    if trial is None:
        return
    for level in (NODE, *reversed(room.judge.cluster.levels_above)):
        if most_in_one_domain(room, job, level) >= role.replicas_max:
            assert len({room.judge.domain(slot, level) for slot in placement_of(trial).slots}) == 1
            break


@given(st.integers(1, 8), st.lists(st.lists(st.integers(1, 4), max_size=8), min_size=1, max_size=6))
def test_one_task_goes_to_the_partly_used_node_that_is_busiest(gpus: int, tasks: list[list[int]]) -> None:
    """By the rule itself: partly used before idle, then most tasks, then an even rest, then fewest GPUs left."""
    capacity = Capacity(Tree(flat(len(tasks), 8)))
    for node, sizes in enumerate(tasks):
        for size in sizes:
            devices = capacity.topology.layouts[node].pick(capacity.free[node], size)
            if devices:
                capacity.hold(Booking(node, devices, ()))
    capacity.check()
    trial = GangTrial(Fit(capacity), Packing(), a_job("j", gpus))
    ranked = sorted(
        (not busy, -busy, (free - gpus) % 2, free - gpus, node)
        for node, busy in enumerate(capacity.tasks)
        if (free := capacity.free[node].bit_count()) >= gpus
    )
    assert trial.seat() == bool(ranked)
    if ranked:
        assert trial.seats[0].booking.node == ranked[0][-1]


@given(st.data(), rooms())
def test_a_refusal_counts_every_node_once_at_most(data: st.DataObject, room: Room) -> None:
    job = data.draw(plain_jobs(room))
    if seat(room, job) is not None:
        return
    why = refusal(room.fit, job)
    cluster = room.judge.cluster
    assert why.nodes == len(cluster.nodes)
    assert sum(count for _, count in why.ruled_out) <= why.nodes
    assert all(count > 0 for _, count in why.ruled_out)
    assert why.gpus_needed == job.gang.gpus_min
    on_idle = Room(room.name)
    if most_in_one_domain(on_idle, job, job.gang.topology.required) < job.gang.roles[0].replicas_min:
        assert why.lack is Lack.NEVER
    else:
        assert why.lack is not Lack.NEVER


def some_way_in(judge: Judge, job: Job) -> bool:
    """Whether an idle cluster holds a gang of single tasks: tries every node for every task."""
    wanted = [role.task for role in job.gang.roles for _ in range(role.replicas_min)]
    have = {node.name: {**judge.totals(node), "gpus": node.gpus} for node in judge.cluster.nodes}

    def place(at: int, domain: object) -> bool:
        if at == len(wanted):
            return True
        asked = {**needs(wanted[at]), "gpus": wanted[at].gpus}
        for name, left in have.items():
            here = judge.domain(Slot(0, "", name), job.gang.topology.required)
            if (at and here != domain) or not judge.takes(job, wanted[at], judge.nodes[name]):
                continue
            if all(left.get(what, 0) >= amount for what, amount in asked.items()):
                left.update({what: left[what] - amount for what, amount in asked.items()})
                found = place(at + 1, here)
                left.update({what: left[what] + amount for what, amount in asked.items()})
                if found:
                    return True
        return False

    return place(0, None)


@given(st.data(), st.sampled_from(sorted(CLUSTERS)))
@settings(max_examples=200)
def test_two_roles_do_not_take_from_one_another_what_only_one_of_them_can_use(data: st.DataObject, name: str) -> None:
    room = Room(name)
    cluster = room.judge.cluster
    levels = st.sampled_from(["", "", *cluster.levels_above, NODE])
    roles = tuple(
        Role(each, count := data.draw(st.integers(1, 3)), count, data.draw(tasks(cluster, shared=False)))
        for each in "ab"
    )
    job = Job("j", Gang(roles, Topology(data.draw(levels))))
    fits = some_way_in(room.judge, job)
    assert ever(room.fit, job) == fits
    assert (seat(room, job) is not None) == fits


@given(st.data(), rooms())
@settings(max_examples=200)
def test_nothing_is_counted_out_that_can_be_seated(data: st.DataObject, room: Room) -> None:
    job = replace(data.draw(jobs(room.judge.cluster, "j")), array=None)
    fit = room.fit
    by_counting = Counting(fit, job, supply_now(fit.capacity), fit.passing).holds()
    if seat(room, job) is not None:
        assert by_counting
        assert ever(fit, job)
