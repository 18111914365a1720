"""The adviser of policy gavel: solves for the shares of all jobs, and says who runs where in the next round."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace

from phalanx.advice.allocation import Demand, Shares, allocate, solver
from phalanx.advice.rounds import ELSEWHERE, Choice, Contender, Spans, choose
from phalanx.cluster.bits import members
from phalanx.engine.event import Advice
from phalanx.engine.records import AttemptRecord, JobRecord, Phase, StopReason
from phalanx.engine.state import State
from phalanx.placement.place import ever
from phalanx.policy.gavel import confined
from phalanx.workload.family import BASE, relative_speed
from phalanx.workload.gang import Role, Task
from phalanx.workload.job import Job

WEIGHT_LABEL = "weight"
"""The label of a job that says how many times the share of others it is due."""

ALL_THE_TIME = 1 - 1e-6

FINAL_REASONS = (StopReason.CANCELLED, StopReason.MAX_RUN)
"""Reasons of a stop after which a job does not come back."""


class Gavel:
    """Answers for one State after the other. What it keeps from one to the next only saves time."""

    def __init__(self) -> None:
        solver()
        self._demands: dict[str, Demand | None] = {}
        self._of_kind: dict[Hashable, Demand | None] = {}

    def __call__(self, state: State, now: int) -> Advice:
        """The round that begins now."""
        types = _types(state)
        contenders = self._contenders(state, types, now)
        choice = choose(contenders, _capacity(state, types))
        body = {f"type {name}": float(number) for number, name in enumerate(types)}
        if _settled(contenders, choice):
            body["rest"] = 1.0
        for rank, job in enumerate(choice.order):
            body[f"rank {job}"] = float(rank)
        for job, gpu_type in choice.targets.items():
            body[f"target {job}"] = float(gpu_type)
        for contender in contenders:
            body.update(_entries(state, contender, choice))
        return Advice("gavel", body)

    def _contenders(self, state: State, types: tuple[str, ...], now: int) -> list[Contender]:
        present = sorted(_present(state), key=lambda record: record.number)
        demands = self._demands_of(state, present, types)
        shares = _shares(demands, _capacity(state, types))
        found = []
        for record in present:
            demand = demands.get(record.job.id)
            if demand is not None and any(shares[demand]):
                contender = Contender(record.job.id, record.number, demand.gpus, shares[demand])
                contender.lies_on = _lies_on(state, record, types)
                _settle(state, record, contender, now)
                found.append(contender)
        return found

    def _demands_of(self, state: State, present: list[JobRecord], types: tuple[str, ...]) -> dict[str, Demand]:
        known = self._demands
        self._demands = {
            record.job.id: known[record.job.id] if record.job.id in known else self._demand(state, record.job, types)
            for record in present
        }
        return {job: demand for job, demand in self._demands.items() if demand is not None}

    def _demand(self, state: State, job: Job, types: tuple[str, ...]) -> Demand | None:
        """What a job asks for, worked out once for jobs of one kind."""
        kind = (types, job.gang, job.node_selector, job.tolerations, _label(job, "model"), _label(job, WEIGHT_LABEL))
        if kind not in self._of_kind:
            self._of_kind[kind] = _demand(state, job, types)
        return self._of_kind[kind]


def _types(state: State) -> tuple[str, ...]:
    """The GPU types of the cluster, in the order of its nodes."""
    return tuple(dict.fromkeys(node.gpu_type for node in state.topology.nodes if node.gpus))


def _capacity(state: State, types: tuple[str, ...]) -> tuple[float, ...]:
    """GPUs of each type that take new work, less those of attempts that may not be stopped."""
    gpus = dict.fromkeys(types, 0)
    capacity, nodes = state.capacity, state.topology.nodes
    for node in members(capacity.open):
        if nodes[node].gpus:
            gpus[nodes[node].gpu_type] += (capacity.all_devices[node] & ~capacity.unhealthy[node]).bit_count()
    for attempt in state.attempts_present():
        if not attempt.stoppable:
            for booking in attempt.bookings:
                if capacity.open >> booking.node & 1 and booking.devices:
                    gpus[nodes[booking.node].gpu_type] -= booking.devices.bit_count()
    return tuple(float(count) for count in gpus.values())


def _present(state: State) -> Iterator[JobRecord]:
    """Who waits in line, or has devices that it can be made to give up."""
    for waiting in state.classes.values():
        for _, job in waiting.jobs:
            yield state.jobs[job]
    for attempt in state.attempts_present():
        record = state.jobs[attempt.job.id]
        reason = attempt.stop_reason or state.to_stop.get(attempt.key)
        if attempt.stoppable and not record.cancelled and reason not in FINAL_REASONS:
            yield record


def _demand(state: State, job: Job, types: tuple[str, ...]) -> Demand | None:
    """None if a job takes no GPUs, or more than there are of any one type."""
    model, weight = _label(job, "model"), _weight(job)
    gpus, speeds = [], []
    for gpu_type in types:
        on_type = replace(job, gang=confined(job.gang, gpu_type)) if len(types) > 1 else job
        wanted = _gpus(state, on_type, gpu_type) if _may_use(job, gpu_type) and ever(state.fit, on_type) else 0.0
        gpus.append(wanted)
        speeds.append(relative_speed(gpu_type, BASE, model) if wanted else 0.0)
    return Demand(tuple(gpus), tuple(speeds), weight) if any(gpus) else None


def _may_use(job: Job, gpu_type: str) -> bool:
    """Whether no task of a job is for other types only."""
    return all(
        not task.gpus or not task.gpu_types or gpu_type in task.gpu_types for task, _ in _tasks(job.gang.roles, 1)
    )


def _gpus(state: State, job: Job, gpu_type: str) -> float:
    """GPUs that a job takes at its smallest; a share of a device counts as what it is."""
    number = state.capacity.gpu_types.index(gpu_type)
    total = 0.0
    for task, count in _tasks(job.gang.roles, 1):
        portions = state.fit.ask(task, job).portions
        portion = portions[number] if portions else None
        total += count * task.gpus * (portion.compute_permille / 1000 if portion is not None else 1.0)
    return total


def _tasks(roles: tuple[Role, ...], times: int) -> Iterator[tuple[Task, int]]:
    for role in roles:
        if role.members:
            yield from _tasks(role.members, times * role.replicas_min)
        else:
            yield role.task, times * role.replicas_min


def _label(job: Job, name: str) -> str:
    return next((value for key, value in job.labels if key == name), "")


def _weight(job: Job) -> float:
    """By its label; 1 if that is no number above 0."""
    try:
        weight = float(_label(job, WEIGHT_LABEL) or 1.0)
    except ValueError:
        return 1.0
    return weight if 0 < weight < float("inf") else 1.0


def _shares(demands: dict[str, Demand], capacity: tuple[float, ...]) -> dict[Demand, Shares]:
    """The share of each kind of job. Nobody has one who asks for more than there is."""
    counts: dict[Demand, int] = {}
    for demand in demands.values():
        counts[demand] = counts.get(demand, 0) + 1
    groups = [(_within(demand, capacity), demand) for demand in sorted(counts)]
    solved = allocate(tuple((within, counts[demand]) for within, demand in groups if any(within.gpus)), capacity)
    shares = dict.fromkeys(counts, (0.0,) * len(capacity))
    shares.update(zip((demand for within, demand in groups if any(within.gpus)), solved, strict=True))
    return shares


def _within(demand: Demand, capacity: tuple[float, ...]) -> Demand:
    """The demand on those types alone of which there are enough GPUs now."""
    enough = [0 < gpus <= there for gpus, there in zip(demand.gpus, capacity, strict=True)]
    if all(fits or not gpus for fits, gpus in zip(enough, demand.gpus, strict=True)):
        return demand
    gpus = tuple(value if fits else 0.0 for value, fits in zip(demand.gpus, enough, strict=True))
    speeds = tuple(value if fits else 0.0 for value, fits in zip(demand.speeds, enough, strict=True))
    return replace(demand, gpus=gpus, speeds=speeds)


def _lies_on(state: State, record: JobRecord, types: tuple[str, ...]) -> int | None:
    """The type of the devices that a job has and is not about to leave."""
    attempt = record.attempt
    if attempt is None or attempt.phase is Phase.STOPPING or attempt.key in state.to_stop:
        return None
    nodes = state.topology.nodes
    on = dict.fromkeys(nodes[booking.node].gpu_type for booking in attempt.bookings if booking.devices)
    return types.index(next(iter(on))) if len(on) == 1 else ELSEWHERE


def _settle(state: State, record: JobRecord, contender: Contender, now: int) -> None:
    """Works out what a contender is owed."""
    memory, job = state.memory, record.job.id
    if job not in memory["owed"]:
        contender.welcome(memory["round_ms"])
        return
    elapsed_ms = now - memory["began_ms"]
    received_ms = min(_executed_ms(record.attempt, now), elapsed_ms)
    spans = Spans(memory["round_ms"], elapsed_ms, received_ms)
    contender.settle(memory["shares"].get(job, {}), memory["owed"][job], spans)


def _executed_ms(attempt: AttemptRecord | None, now: int) -> int:
    return attempt.executed_ms(now) if attempt is not None else 0


def _settled(contenders: list[Contender], choice: Choice) -> bool:
    """Whether the next round would say the same: everybody is where they should be all the time, or nobody has a place.

    In the latter case who is targeted starts now if it can at all, and that it has started brings on another round.
    """
    if all(contender.lies_on is None for contender in contenders):
        return True
    return all(
        contender.lies_on is not None
        and contender.lies_on == choice.targets.get(contender.job)
        and contender.shares[contender.lies_on] > ALL_THE_TIME
        for contender in contenders
    )


def _entries(state: State, contender: Contender, choice: Choice) -> Iterator[tuple[str, float]]:
    """What the Advice says of one job."""
    job = contender.job
    for gpu_type in contender.types():
        yield f"share {gpu_type} {job}", contender.shares[gpu_type]
        yield f"owed {gpu_type} {job}", float(contender.owed_ms[gpu_type])
    target = choice.targets.get(job)
    if target is not None and contender.lies_on not in (None, target):
        yield f"stray {job}", float(state.jobs[job].opened[1])
