"""A judge of placements and states that works everything out anew from names and counts, without the engine's code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from phalanx.cluster.capacity import Booking
from phalanx.cluster.cluster import CLUSTER, NODE, Cluster, Health, Node
from phalanx.cluster.device import Portion
from phalanx.engine.state.records import AttemptRecord, JobRecord, JobState, Phase, usage_of
from phalanx.engine.state.state import State
from phalanx.placement.placement import Placement, Slot
from phalanx.workload.gang import Role, Task
from phalanx.workload.job import After, Job

Device = tuple[str, int]


def as_grown(asked: Job, submitted: Job) -> Job:
    """What a gang must be like once it has grown: one that its policy had start closer may be as wide as it asked for.

    Not one of which a task was divided: its parts stay together.
    """
    sizes = [[(role.name, role.task.gpus) for role in job.gang.roles] for job in (asked, submitted)]
    if sizes[0] != sizes[1]:
        return asked
    return replace(asked, gang=replace(asked.gang, topology=submitted.gang.topology))


class Judge:
    """Knows the cluster and its health from what it was told, and never asks the engine."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.nodes = {node.name: node for node in cluster.nodes}
        self.health = {node.name: Health.HEALTHY for node in cluster.nodes}
        self.sick: dict[Device, Health] = {}
        self.resizes: dict[str, Placement] = {}

    def check_placement(self, job: Job, placement: Placement) -> None:
        """Numbers, kinds of nodes, and closeness."""
        assert len({slot.rank for slot in placement.slots}) == len(placement.slots), f"{job.id} has a rank twice"
        for slot in placement.slots:
            self._check_slot(job, leaves(job)[slot.role], slot)
        taken = [(slot.node, device) for slot in placement.slots if not slot.portion for device in slot.devices]
        assert len(taken) == len(set(taken)), f"{job.id} has a device twice"
        self._check_group(job, job.gang.roles, job.gang.topology.required, list(placement.slots), "")

    def _check_slot(self, job: Job, task: Task, slot: Slot) -> None:
        node = self.nodes[slot.node]
        assert len(slot.devices) == task.gpus, f"{job.id}: {slot} has not {task.gpus} GPUs"
        assert (slot.portion is None) == (task.share is None)
        assert all(0 <= device < node.gpus for device in slot.devices)
        assert self.takes(job, task, node), f"{job.id} may not be on {node.name}"

    def takes(self, job: Job, task: Task, node: Node) -> bool:
        """Whether an idle node takes a task of a job."""
        if task.gpus and task.gpu_types and node.gpu_type not in task.gpu_types:
            return False
        if node.gpus < task.gpus or node.gpu_memory_gb < task.gpu_memory_gb:
            return False
        if any(label not in node.labels for label in job.node_selector):
            return False
        for taint in node.taints:
            tolerated = any(
                t.key in ("", taint.key) and t.value in ("", taint.value) and t.effect in ("", taint.effect)
                for t in job.tolerations
            )
            if taint.effect in ("NoSchedule", "NoExecute") and not tolerated:
                return False
        totals = self.totals(node)
        return all(amount <= totals.get(name, 0) for name, amount in needs(task).items())

    def totals(self, node: Node) -> dict[str, int]:
        """What a node has of everything that is divided."""
        return {
            "cpus": node.cpus_milli,
            "memory": node.memory_mb,
            "nics": node.nics,
            "cpus_limit": int(node.cpus_milli * self.cluster.overcommit.cpus),
            "memory_limit": int(node.memory_mb * self.cluster.overcommit.memory),
            **{f"storage.{tier}": size_gb for tier, size_gb in node.storage_gb},
        }

    def _check_group(self, job: Job, roles: tuple[Role, ...], required: str, slots: list[Slot], path: str) -> None:
        """One domain for the whole group, each role in the right number, and each replica a group of its own."""
        assert self._together(slots, required), f"{job.id}: {slots} not in one {required}"
        for role in roles:
            name = f"{path}/{role.name}" if path else role.name
            mine = [slot for slot in slots if slot.role == name or slot.role.startswith(f"{name}/")]
            replicas = list(_replicas(role, mine, name))
            assert role.replicas_min <= len(replicas) <= role.replicas_max, f"{job.id}: {len(replicas)} of {name}"
            for replica in replicas:
                self._check_group(job, role.members, role.topology.required, replica, name)

    def _together(self, slots: list[Slot], level: str) -> bool:
        """Whether slots lie in one domain. A task without devices lies in every part of its node."""
        if level in self.cluster.levels_inside:
            if len({slot.node for slot in slots}) > 1:
                return False
            slots = [slot for slot in slots if slot.devices]
        return len({self.domain(slot, level) for slot in slots}) <= 1

    def domain(self, slot: Slot, level: str) -> object:
        """The domain of a level that a slot lies in; a slot that lies across several is an error."""
        node = self.nodes[slot.node]
        if level in ("", CLUSTER):
            return None
        if level in self.cluster.levels_above:
            return node.path[: self.cluster.levels_above.index(level) + 1]
        if level == NODE:
            return slot.node
        for number, group in enumerate(parts(node, level)):
            if set(slot.devices) <= group:
                return slot.node, number
        raise AssertionError(f"{slot} lies in no one {level}")

    def check_open(self, placement: Placement) -> None:
        """Every slot on healthy hardware."""
        for slot in placement.slots:
            assert self.health[slot.node] is Health.HEALTHY, f"{slot} on a {self.health[slot.node]} node"
            for device in slot.devices:
                assert (slot.node, device) not in self.sick, f"{slot} on a sick device"

    def check_shares(self, state: State) -> None:
        """No part of a device with two holders or two claimants, no claim on what is kept, no amount above what is."""
        held, kept, claimed = Sums(), Sums(), Sums()
        for attempt in state.attempts():
            for slot, stays in self.slots(attempt):
                sums = (claimed,) if attempt.waits else (held, kept) if stays else (held,)
                for each in sums:
                    each.add(attempt, slot)
        for sums in (held, claimed, kept.with_(claimed)):
            for at, names in sums.whole.items():
                assert len(names) + len(sums.parts.get(at, ())) == 1, f"{at} is given to {names}"
            for at, portions in sums.parts.items():
                self._check_parts(at, portions)
            for (node, name), amount in sums.amounts.items():
                total = self.totals(self.nodes[node]).get(name, 0)
                assert amount <= total, f"{node}: {amount} of {total} {name} given out"

    def slots(self, attempt: AttemptRecord) -> list[tuple[Slot, bool]]:
        """What an attempt holds, and whether it keeps it; while it is resized, what it had and what it will have."""
        stays = attempt.phase is not Phase.STOPPING
        new = self.resizes.get(attempt.key)
        if new is None or attempt.phase not in (Phase.RESIZING, Phase.STOPPING):
            return [(slot, stays) for slot in attempt.placement.slots]
        old = attempt.placement.slots
        if where(attempt.placement) == where(new):
            return [(slot, stays) for slot in new.slots]
        return [
            *((slot, stays and slot in new.slots) for slot in old),
            *((slot, stays) for slot in new.slots if slot not in old),
        ]

    def _check_parts(self, at: Device, portions: list[Portion]) -> None:
        """Guaranteed compute at most all of it, memory at most what there is, one way of sharing, no slice twice."""
        memory_mb = int(self.nodes[at[0]].gpu_memory_gb * 1024)
        guaranteed = [portion.compute_permille for portion in portions if not portion.revocable]
        assert sum(guaranteed) <= 1000, f"{at}: {portions}"
        assert sum(portion.memory_mb for portion in portions) <= memory_mb, f"{at}: {portions}"
        assert len({(portion.mode, portion.turns) for portion in portions}) == 1, f"{at}: {portions}"
        turns = [portion.turn for portion in portions if portion.turn is not None]
        assert len(turns) == len(set(turns)), f"{at}: {portions}"

    def check_usage(self, state: State) -> None:
        """A queue uses what its jobs hold or were promised, but for what is on its way out."""
        staying: dict[str, list[Booking]] = {queue: [] for queue in state.queues()}
        for attempt in state.attempts():
            if attempt.key not in state.leaving:
                staying[attempt.job.queue] += [each for each in attempt.bookings if each not in attempt.removing]
        for queue, bookings in staying.items():
            assert state.usage(queue) == usage_of(bookings), f"queue {queue}"

    def check_jobs(self, state: State) -> None:
        """Every job is over, has an attempt, stands in exactly one class, or is parked for a reason that holds."""
        standing = Counter(job for waiting in state.classes.values() for _, job in waiting.jobs)
        for record in state.jobs.values():
            places = [
                record.final is not None,
                record.attempt is not None,
                standing[record.job.id] == 1,
                record.parked is not None,
            ]
            assert places.count(True) == 1, f"job {record.job.id} is in {places.count(True)} places"
            assert (record.queued is not None) == (standing[record.job.id] == 1)
            assert (state.reason(record.job.id) is None) == (
                record.final is not None or (record.attempt is not None and record.attempt.phase is not Phase.CLAIMED)
            )
            if record.parked is not None:
                assert record.parked in obstacles(state, record), f"job {record.job.id} is {record.parked} for nothing"
            elif standing[record.job.id]:
                assert not obstacles(state, record) - {"array_limit"}, f"job {record.job.id} may not stand in line"
        for name, count in _active_members(state).items():
            limit = next(
                record.job.array.parallel_max
                for record in state.jobs.values()
                if record.job.array_of == name and record.job.array
            )
            assert not limit or count <= limit, f"array {name} has {count} members in line or running, not {limit}"


def where(placement: Placement) -> list[tuple[int, str, tuple[int, ...]]]:
    """The devices of each task, whatever part of them it has."""
    return [(slot.rank, slot.node, slot.devices) for slot in placement.slots]


def obstacles(state: State, record: JobRecord) -> set[str]:
    """All reasons that keep a job out of the line, worked out again."""
    found = set()
    job = record.job
    if record.held:
        found.add("held")
    for dependency in job.after:
        other = state.jobs[dependency.job]
        if dependency.on is After.START and (other.first_start_ms is not None or other.final is not None):
            continue
        if other.final is None:
            found.add("dependency")
        elif {After.SUCCESS: JobState.SUCCEEDED, After.FAILURE: JobState.FAILED}.get(
            dependency.on, other.final
        ) is not other.final:
            found.add("dependency_failed")
    if job.begin_ms is not None and job.begin_ms > state.now:
        found.add("begin_time")
    if record.not_before_ms > state.now:
        found.add("backoff")
    if job.array and job.array.parallel_max and _active_members(state)[job.array_of] >= job.array.parallel_max:
        found.add("array_limit")
    return found


def _active_members(state: State) -> Counter[str]:
    return Counter(
        record.job.array_of
        for record in state.jobs.values()
        if record.job.array and (record.attempt is not None or record.queued is not None)
    )


@dataclass
class Sums:
    """Who has which devices, whole or in parts, and how much of what divides."""

    whole: dict[Device, list[str]] = field(default_factory=dict)
    parts: dict[Device, list[Portion]] = field(default_factory=dict)
    amounts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, attempt: AttemptRecord, slot: Slot) -> None:
        for device in slot.devices:
            if slot.portion is None:
                self.whole.setdefault((slot.node, device), []).append(attempt.key)
            else:
                self.parts.setdefault((slot.node, device), []).append(slot.portion)
        for name, amount in needs(leaves(attempt.job)[slot.role]).items():
            self.amounts[slot.node, name] += amount

    def with_(self, other: Sums) -> Sums:
        return Sums(
            {at: self.whole.get(at, []) + other.whole.get(at, []) for at in {**self.whole, **other.whole}},
            {at: self.parts.get(at, []) + other.parts.get(at, []) for at in {**self.parts, **other.parts}},
            self.amounts + other.amounts,
        )


def leaves(job: Job) -> dict[str, Task]:
    """The tasks of a job by their paths."""

    def walk(roles: tuple[Role, ...], path: tuple[str, ...]) -> Iterator[tuple[str, Task]]:
        for role in roles:
            if role.members:
                yield from walk(role.members, (*path, role.name))
            else:
                yield "/".join((*path, role.name)), role.task

    return dict(walk(job.gang.roles, ()))


def needs(task: Task) -> dict[str, int]:
    """What a task takes of a node beside GPUs."""
    amounts = {
        "cpus": task.cpus_milli,
        "memory": task.memory_mb,
        "nics": task.nics,
        "cpus_limit": max(task.cpus_limit_milli, task.cpus_milli),
        "memory_limit": max(task.memory_limit_mb, task.memory_mb),
        **{f"storage.{tier}": size_gb for tier, size_gb in task.storage_gb},
    }
    return {name: amount for name, amount in amounts.items() if amount}


def _replicas(role: Role, slots: list[Slot], path: str) -> Iterator[list[Slot]]:
    """The slots of each replica of a role. Those of one path are in the order of replicas; inside, sizes are fixed."""
    if not role.members:
        for slot in slots:
            yield [slot]
        return
    each = {name: sum(1 for _ in found) for name, found in _paths(role, path)}
    by_path = {name: [slot for slot in slots if slot.role == name] for name in each}
    counts = {len(found) / each[name] for name, found in by_path.items()}
    assert len(counts) == 1, f"replicas of {path} are not whole: {counts}"
    for i in range(int(counts.pop())):
        yield [slot for name, found in by_path.items() for slot in found[i * each[name] : (i + 1) * each[name]]]


def _paths(role: Role, path: str) -> list[tuple[str, range]]:
    """Paths of the tasks inside one replica, each with as many numbers as there are tasks."""
    found: list[tuple[str, range]] = []
    for member in role.members:
        assert member.replicas_min == member.replicas_max, "the judge knows sub-gangs of fixed size only"
        name = f"{path}/{member.name}"
        inner = _paths(member, name) if member.members else [(name, range(1))]
        found.extend((each, range(len(numbers) * member.replicas_max)) for each, numbers in inner)
    return found


def parts(node: Node, level: str) -> list[set[int]]:
    """The groups of devices of a level inside a node."""
    count = dict(node.split).get(level, 0)
    return [set(range(i * node.gpus // count, (i + 1) * node.gpus // count)) for i in range(count)]
