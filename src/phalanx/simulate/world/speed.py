"""Speed: how fast a job runs in virtual time where it lies, where 1 is as its trace measured it.

The duration of a job in a trace is what it takes with all the GPUs it asked for, placed as well as this cluster
allows, on the hardware it was measured on. What `docs/concepts/virtual-time.md` says of speed is worked out here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from phalanx.cluster.cluster import Cluster
from phalanx.cluster.device import FULL_PERMILLE, DeviceLoad, Mode, Portion
from phalanx.cluster.topology import Topology
from phalanx.placement.fabric import Fabric
from phalanx.placement.placement import Placement, Slot
from phalanx.placement.ranks import DEFAULT_TRAFFIC, fabric_of, plan_for
from phalanx.placement.sharing import INTERFERENCE, Interference, slowdown
from phalanx.simulate.world.locality import CURVES, TOGETHER, Curve, Room, spread_of, tasks_of
from phalanx.simulate.world.moved import speed_with_moved
from phalanx.simulate.world.packed import guaranteed_speed, kept, packed_speed
from phalanx.simulate.world.step import best_communication_ms, communication_ms, compute_ms
from phalanx.simulate.world.training import best_batch, gets_done, is_adaptive, noise_scale
from phalanx.simulate.world.turns import speed_in_turns, stint_of
from phalanx.workload.family import Family, family_of
from phalanx.workload.family import relative_speed as relative_speed
from phalanx.workload.footprint import footprint_of
from phalanx.workload.gang import Role, Task
from phalanx.workload.job import Job
from phalanx.workload.pairing import may_pair, pair_speed
from phalanx.workload.parallel import ParallelPlan, Traffic
from phalanx.workload.throughputs import Throughputs

MODEL_LABEL = "model"
"""The label of a job that names its model."""

GPUS_LABEL = "gpus"
"""The label of an elastic job that says with how many GPUs its duration was measured; else it is the most it takes."""

SENDING = 0.3
"""The part of a step that workers and parameter servers send in, at the numbers asked for: an assumption of ours."""

KEPT_MAX = 20_000
"""Speeds that are remembered: past that many all are forgotten, which costs time and changes nothing."""

INTERFERENCES: dict[Family, Interference] = {
    # Embeddings are copies in device memory, which lose more by switching: see `placement.sharing`.
    Family.RECOMMENDATION: replace(INTERFERENCE, switch_overhead=0.10),
}


@dataclass(slots=True)
class _Known:
    """What a model remembers of one cluster."""

    fabric: Fabric | None = None
    rooms: dict[tuple[str, ...], Room] = field(default_factory=dict)
    compact_ms: dict[tuple[object, ...], float] = field(default_factory=dict)
    meshed: dict[tuple[object, ...], float] = field(default_factory=dict)
    in_one_slot: dict[tuple[object, ...], float] = field(default_factory=dict)
    shared: tuple[tuple[object, ...], float] = ((), 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class SpeedModel:
    """How fast jobs run in one cluster.

    `alpha` is the exponent with which throughput follows the number of GPUs. `measured_on` is the GPU type on which
    jobs that name none were measured; if it is empty, they run alike on all types. What was measured of a model on
    two types (`throughputs`) goes before what the catalogue makes of them.
    """

    topology: Topology
    curves: Mapping[Family, Curve] = field(default_factory=lambda: CURVES)
    interferences: Mapping[Family, Interference] = field(default_factory=lambda: INTERFERENCES)
    alpha: float = 0.9
    measured_on: str = ""
    throughputs: Throughputs | None = None
    _known: _Known = field(default_factory=_Known, init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= 1:
            raise ValueError(f"speed: alpha {self.alpha}; expected a number above 0 and up to 1")

    def alone(self, job: Job, placement: Placement) -> float:
        """The speed of a job that shares no device: locality × hardware × elasticity, or by the steps of its mesh."""
        if placement.mesh and self.topology.cluster.links:
            return self._meshed(job, placement)
        if len(placement.slots) == 1:
            return self._in_one_slot(job, placement)
        return self._plain(job, placement)

    def is_at_its_best(self, placement: Placement) -> bool:
        """Whether no job could have the same devices nearer each other or more for itself: all on one node, whole."""
        slots = placement.slots
        return len(slots) == 1 and slots[0].portion is None and not placement.mesh and not self._is_split(placement)

    def full(self, job: Job, placement: Placement) -> float:
        """The speed that what a job holds would give it at its best: as many GPUs of such types, near each other.

        Of GPUs of several types every one counts as what it could do. A job that was measured on all of a device and
        has a part of it could have that part.
        """
        if placement.mesh and self.topology.cluster.links:
            compact = self._by_compact_steps(job, placement)
            if compact is not None:
                return compact
        elif len(placement.slots) == 1 and placement.slots[0].portion is None and not self._is_split(placement):
            return self._in_one_slot(job, placement)
        gpus = placement.gpus
        if not gpus:
            return 1.0
        part = min(_part_of_measured(job, slot) for slot in placement.slots)
        return self._mean_hardware(job, placement) * self._elasticity(job, gpus) * served(job, placement) * part

    def _in_one_slot(self, job: Job, placement: Placement) -> float:
        """Likewise, remembered: on a node that is not split, only the number and type of the GPUs count."""
        if self._is_split(placement):
            return self._plain(job, placement)
        (slot,) = placement.slots
        number = self.topology.number[slot.node]
        key = (job.gang, job.labels, self.topology.nodes[number].gpu_type, len(slot.devices))
        speeds = self._known.in_one_slot
        speed = speeds.get(key)
        if speed is None:
            if len(speeds) >= KEPT_MAX:
                speeds.clear()
            speed = speeds[key] = self._plain(job, placement)
        return speed

    def _is_split(self, placement: Placement) -> bool:
        """Whether the node of a placement in one slot has sockets or switches."""
        return bool(self.topology.layouts[self.topology.number[placement.slots[0].node]].levels)

    def shared(
        self, job: Job, portion: Portion, beside: Sequence[Portion], company: Sequence[Job | None] = ()
    ) -> float:
        """What neighbours leave of the speed of a task with a portion of a device, where 1 is the portion for itself.

        `beside` are the portions that other jobs hold of the same device, `company` the jobs of these, where they are
        known. A job of several tasks, which go in step, is as fast as its slowest. What is revocable was asked for as
        all of a device: its speed is that of the compute it has.
        """
        # The tasks of a gang mostly have the same neighbours, and are asked of one after the other.
        known, asked = self._known, (job, portion, tuple(beside), tuple(company))
        if known.shared[0] != asked:
            known.shared = (asked, self._shared(job, portion, beside, company))
        return known.shared[1]

    def _shared(self, job: Job, portion: Portion, beside: Sequence[Portion], company: Sequence[Job | None]) -> float:
        if not portion.revocable or portion.mode is not Mode.FRACTION:
            return self._left(job, portion, beside, company)
        return speed_with_moved(self._left(job, portion, beside, company), job, portion, self._interference(job))

    def _left(self, job: Job, portion: Portion, beside: Sequence[Portion], company: Sequence[Job | None]) -> float:
        """The same, wherever its memory is."""
        throttled = portion.revocable and portion.mode is Mode.FRACTION
        held = portion.compute_permille / FULL_PERMILLE if throttled else 1.0
        if not beside:
            return held
        others = [(each, other) for each, other in zip(beside, company, strict=bool(company)) if other is not None]
        if portion.mode is Mode.TURNS:
            packed = [
                self.kept(job, other) for each, other in others if job.id == each.beside or other.id == portion.beside
            ]
            if packed:
                return packed_speed(packed, len(beside) + 1, self._interference(job).switch_overhead)
            if any(footprint_of(each) is not None for each in (job, *(other for _, other in others))):
                return self._in_turns(job, portion, beside, company)
        if throttled:
            kept_beside = [self.kept(job, other) for each, other in others if not each.revocable]
            if kept_beside:
                return held * min(kept_beside) * min(1.0, FULL_PERMILLE / _revocable_permille((portion, *beside)))
        return held * self._divided(job, portion, beside) * self._undisturbed(job, portion, others)

    def _in_turns(self, job: Job, portion: Portion, beside: Sequence[Portion], company: Sequence[Job | None]) -> float:
        """The part of a round that a job runs in, where it is known what it costs a job to hand on."""
        jobs = company or [None] * len(beside)
        others = [
            stint_of(other, each, INTERFERENCE if other is None else self._interference(other))
            for each, other in zip(beside, jobs, strict=True)
        ]
        return speed_in_turns(stint_of(job, portion, self._interference(job)), others)

    def _divided(self, job: Job, portion: Portion, beside: Sequence[Portion]) -> float:
        """What is left of a portion that is divided in time or space from those beside it."""
        is_half = portion.mode is Mode.FRACTION and portion.compute_permille < FULL_PERMILLE
        if is_half and not portion.revocable and may_pair(job.gang):
            # It asked for the whole device, and was given half.
            return pair_speed(self._reference(job))
        holders = {str(i): each for i, each in enumerate((portion, *beside))}
        guaranteed = sum(each.compute_permille for each in holders.values() if not each.revocable)
        load = DeviceLoad(None, 0, holders=holders, guaranteed_permille=guaranteed)
        return 1.0 / slowdown(load, "0", self._interference(job))

    def _undisturbed(self, job: Job, portion: Portion, others: Sequence[tuple[Portion, Job]]) -> float:
        """What revocable parts of its device leave of the speed of a job that has a guaranteed part."""
        if portion.mode is not Mode.FRACTION or portion.revocable:
            return 1.0
        revocable = [(each.compute_permille, self.kept(job, other)) for each, other in others if each.revocable]
        return guaranteed_speed(revocable, self._interference(job).scavenged_permille)

    def _interference(self, job: Job) -> Interference:
        return self.interferences.get(_family(job), INTERFERENCE)

    def kept(self, job: Job, beside: Job) -> float:
        """What a job keeps of its speed that runs at the same time as another, by what was measured of their models."""
        models = _label(job, MODEL_LABEL), _label(beside, MODEL_LABEL)
        measured = self.throughputs.kept(self._reference(job), *models) if self.throughputs is not None else None
        return kept(_family(job), _family(beside)) if measured is None else measured

    def _plain(self, job: Job, placement: Placement) -> float:
        gpus = placement.gpus
        if not gpus:
            return 1.0
        locality = self._locality(job, placement) if gpus > 1 else 1.0
        return locality * self._hardware(job, placement) * self._elasticity(job, gpus) * served(job, placement)

    def _locality(self, job: Job, placement: Placement) -> float:
        """What distance leaves, against the best that this cluster could give the same tasks."""
        spread = spread_of(self.topology, placement.slots)
        if spread == TOGETHER:
            return 1.0
        curve = self.curves[_family(job)]
        speed = curve.at(spread)
        best = max((curve.at(other) for other in self._room(job).spreads(tasks_of(placement))), default=speed)
        return speed / max(best, speed)

    def _room(self, job: Job) -> Room:
        types = _types(job)
        room = self._known.rooms.get(types)
        if room is None:
            room = self._known.rooms[types] = Room(self.topology, types)
        return room

    def _hardware(self, job: Job, placement: Placement) -> float:
        """The slowest of the types it lies on, against the type it was measured on."""
        reference = self._reference(job)
        if not reference:
            return 1.0
        nodes, number = self.topology.nodes, self.topology.number
        types = dict.fromkeys(nodes[number[slot.node]].gpu_type for slot in placement.slots if slot.devices)
        model = _label(job, MODEL_LABEL)
        return min(self._relative(gpu_type, reference, model, placement.gpus) for gpu_type in types)

    def _mean_hardware(self, job: Job, placement: Placement) -> float:
        """The harmonic mean over the GPUs it lies on: those that wait for slower ones are of use in part."""
        reference = self._reference(job)
        if not reference:
            return 1.0
        nodes, number = self.topology.nodes, self.topology.number
        gpus: dict[str, int] = {}
        for slot in placement.slots:
            if slot.devices:
                gpu_type = nodes[number[slot.node]].gpu_type
                gpus[gpu_type] = gpus.get(gpu_type, 0) + len(slot.devices)
        model, size = _label(job, MODEL_LABEL), placement.gpus
        speeds = [(self._relative(gpu_type, reference, model, size), count) for gpu_type, count in gpus.items()]
        return speeds[0][0] if len(speeds) == 1 else size / sum(count / speed for speed, count in speeds)

    def _relative(self, gpu_type: str, reference: str, model: str, gpus: int) -> float:
        measured = self.throughputs.relative(gpu_type, reference, model, gpus) if self.throughputs is not None else None
        return relative_speed(gpu_type, reference, model) if measured is None else measured

    def _reference(self, job: Job) -> str:
        """A job that names types was measured on the first of them."""
        named = (task.gpu_types[0] for task in _gpu_tasks(job) if task.gpu_types)
        return next(named, self.measured_on)

    def adapted(self, job: Job, placement: Placement, done: float) -> float:
        """What a job that tunes its batch gets done with the GPUs it has, when this part of its work is done."""
        part, noise = placement.gpus / asked_gpus(job), noise_scale(done)
        return gets_done(part, best_batch(part, noise), noise) if part else 1.0

    def _elasticity(self, job: Job, gpus: int) -> float:
        if is_adaptive(job):
            return 1.0
        asked = asked_gpus(job)
        return 1.0 if gpus == asked else float((gpus / asked) ** self.alpha)

    def _meshed(self, job: Job, placement: Placement) -> float:
        key = (job.gang, job.labels, job.parallel, job.traffic, placement.mesh)
        known = self._known
        speed = known.meshed.get(key)
        if speed is None:
            if len(known.meshed) >= KEPT_MAX:
                known.meshed.clear()
            by_steps = self._by_steps(job, placement)
            speed = known.meshed[key] = self._plain(job, placement) if by_steps is None else by_steps
        return speed

    def _by_steps(self, job: Job, placement: Placement) -> float | None:
        """Samples a second here over those of the plan as asked for, well placed; None if no plan fits the size.

        A step of more replicas has more samples. Only computing gets faster with the hardware.
        """
        plan, asked = plan_for(job, placement.gpus), plan_for(job, asked_gpus(job))
        if plan is None or asked is None:
            return None
        topology, traffic = self.topology, job.traffic or DEFAULT_TRAFFIC
        paths = [topology.position(topology.number[node], device) for node, device in placement.mesh]
        computing_ms = compute_ms(plan, traffic, self._reference(job) or self._type_of(placement))
        asked_ms = computing_ms + self._compact_ms(job, asked, traffic)
        # A layout that beats the one of a compact placement is as good as measured, not better.
        sending_ms = max(communication_ms(plan, traffic, paths, self._fabric()), self._compact_ms(job, plan, traffic))
        actual_ms = computing_ms / self._hardware(job, placement) + sending_ms
        return plan.dp / asked.dp * (asked_ms / actual_ms if actual_ms else 1.0)

    def _by_compact_steps(self, job: Job, placement: Placement) -> float | None:
        """The same, were its GPUs the nearest that there are."""
        plan, asked = plan_for(job, placement.gpus), plan_for(job, asked_gpus(job))
        if plan is None or asked is None:
            return None
        traffic = job.traffic or DEFAULT_TRAFFIC
        computing_ms = compute_ms(plan, traffic, self._reference(job) or self._type_of(placement))
        asked_ms = computing_ms + self._compact_ms(job, asked, traffic)
        compact_ms = computing_ms / self._mean_hardware(job, placement) + self._compact_ms(job, plan, traffic)
        return plan.dp / asked.dp * (asked_ms / compact_ms if compact_ms else 1.0)

    def _compact_ms(self, job: Job, plan: ParallelPlan, traffic: Traffic) -> float:
        """What a step sends where the plan is laid out on whole nodes; it takes a search, but only once for a shape."""
        task_gpus = max(task.gpus for task in _gpu_tasks(job))
        key = (plan, traffic, task_gpus, _types(job))
        known_ms = self._known.compact_ms.get(key)
        if known_ms is None:
            paths = self._room(job).compact(plan.world_size, task_gpus, plan.tp)
            known_ms = self._known.compact_ms[key] = best_communication_ms(plan, traffic, paths, self._fabric())
        return known_ms

    def _fabric(self) -> Fabric:
        known = self._known
        if known.fabric is None:
            known.fabric = fabric_of(self.topology)
        return known.fabric

    def _type_of(self, placement: Placement) -> str:
        return self.topology.nodes[self.topology.number[placement.mesh[0][0]]].gpu_type


@dataclass(frozen=True, slots=True, eq=False)
class Neutral(SpeedModel):
    """A world in which every job runs as fast as it was measured, wherever it lies and whatever lies beside it."""

    def alone(self, job: Job, placement: Placement) -> float:
        return 1.0

    def is_at_its_best(self, placement: Placement) -> bool:
        return all(slot.portion is None for slot in placement.slots)

    def full(self, job: Job, placement: Placement) -> float:
        return 1.0

    def shared(
        self, job: Job, portion: Portion, beside: Sequence[Portion], company: Sequence[Job | None] = ()
    ) -> float:
        return 1.0

    def adapted(self, job: Job, placement: Placement, done: float) -> float:
        return 1.0


NEUTRAL = Neutral(Topology(Cluster(())))


def served(job: Job, placement: Placement) -> float:
    """What parameter servers leave of the speed: with fewer for each worker than at full size, sending takes longer.

    Only a job whose members without GPUs may be more or fewer has such servers.
    """
    roles = [role for role in job.gang.roles if not role.gpus_each and role.replicas_min < role.replicas_max]
    if not roles:
        return 1.0
    names = [role.name for role in roles]
    servers = sum(slot.role in names for slot in placement.slots) or 1
    workers = sum(bool(slot.devices) for slot in placement.slots) or 1
    asked_servers = sum(role.replicas_max for role in roles)
    asked_workers = sum(role.replicas_max for role in job.gang.roles if role.gpus_each) or 1
    traffic = (workers / servers) / (asked_workers / asked_servers)
    return 1.0 / (1.0 - SENDING + SENDING * traffic)


def _part_of_measured(job: Job, slot: Slot) -> float:
    """What a slot has of the device that its job was measured on, where it has a part of what it asked for."""
    portion = slot.portion
    if portion is None or not (portion.mode is Mode.TURNS or may_pair(job.gang)):
        return 1.0
    return portion.compute_permille / FULL_PERMILLE


def _revocable_permille(portions: Sequence[Portion]) -> int:
    return sum(each.compute_permille for each in portions if each.revocable)


def asked_gpus(job: Job) -> int:
    """The GPUs with which a job takes its duration: those of its label, else the most it can use."""
    label = _label(job, GPUS_LABEL)
    return int(label) if label.isascii() and label.isdigit() and int(label) else job.gang.gpus_max


def _label(job: Job, name: str) -> str:
    for key, value in job.labels:
        if key == name:
            return value
    return ""


def _family(job: Job) -> Family:
    return family_of(_label(job, MODEL_LABEL))


def _types(job: Job) -> tuple[str, ...]:
    """The GPU types a job may use; none if any will do."""
    tasks = list(_gpu_tasks(job))
    if not all(task.gpu_types for task in tasks):
        return ()
    return tuple(dict.fromkeys(name for task in tasks for name in task.gpu_types))


def _gpu_tasks(job: Job) -> Iterator[Task]:
    return (task for role in job.gang.roles for task in _tasks(role) if task.gpus)


def _tasks(role: Role) -> Iterator[Task]:
    if not role.members:
        yield role.task
    for member in role.members:
        yield from _tasks(member)
