"""The adviser of policy gavel: solves for the shares of all jobs, and says who runs where in the next round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import replace

from phalanx.advice.allocation import DIGITS, Demand, Shares, allocate, solver
from phalanx.advice.rounds import ELSEWHERE, Choice, Contender, Place, Spans, choose
from phalanx.cluster.bits import members
from phalanx.engine.event import Advice
from phalanx.engine.records import JobRecord, Phase, StopReason
from phalanx.engine.state import State
from phalanx.engine.trial import Trial
from phalanx.placement.fit import Fit
from phalanx.placement.place import ever
from phalanx.policy.gavel import confined
from phalanx.workload.family import BASE, relative_speed
from phalanx.workload.gang import Role, Task
from phalanx.workload.job import Job

WEIGHT_LABEL = "weight"
"""The label of a job that says how many times the share of others it is due."""

FINAL_REASONS = (StopReason.CANCELLED, StopReason.MAX_RUN, StopReason.OUTDONE)
"""Reasons of a stop after which a job does not come back."""


class Gavel:
    """Answers for one State after the other. What it keeps from one to the next only saves time."""

    def __init__(self) -> None:
        solver()
        self._fit: Fit | None = None
        self._kinds: dict[Hashable, Demand | None] = {}

    def __call__(self, state: State, now: int) -> Advice:
        """The round that begins now."""
        types = _types(state)
        capacity = _capacity(state, types)
        contenders = self._contenders(state, types, capacity)
        for contender in contenders:
            _settle(state, contender, now)
        choice = choose(contenders, capacity)
        _keep_who_cannot_move(state, types, contenders, choice)
        body = {f"type {name}": float(number) for number, name in enumerate(types)}
        if len(choice.targets) == len(contenders):
            body["calm"] = 1.0
        if _content(contenders) or _stuck(state, contenders):
            body["rest"] = 1.0
        body.update((f"rank {job}", float(rank)) for rank, job in enumerate(choice.order))
        for contender in contenders:
            body.update(_entries(state, contender, choice))
        return Advice("gavel", body)

    def _contenders(self, state: State, types: tuple[str, ...], capacity: tuple[float, ...]) -> list[Contender]:
        """Everybody who has a share, with that."""
        present = sorted(_present(state), key=lambda record: record.number)
        asked = [(record, self._demand(state, record.job, types)) for record in present]
        shares = _shares([demand for _, demand in asked if demand is not None], capacity)
        found = []
        for record, demand in asked:
            if demand is not None:
                places = _places(demand, shares[demand])
            else:
                places = _anywhere(state, record.job, sum(capacity) / len(present))
            if any(place.share for place in places.values()):
                found.append(Contender(record.job.id, record.number, places, _lies_on(state, record, types)))
        return found

    def _demand(self, state: State, job: Job, types: tuple[str, ...]) -> Demand | None:
        """What a job asks for, worked out once for all jobs of its kind."""
        if self._fit is not state.fit:
            self._fit, self._kinds = state.fit, {}
        kind = (job.gang, job.node_selector, job.tolerations, job.labels)
        if kind not in self._kinds:
            self._kinds[kind] = _demand(state, job, types)
        return self._kinds[kind]


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
    """None if a job takes no GPUs, or more than one type could ever give it."""
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


def _shares(demands: list[Demand], capacity: tuple[float, ...]) -> dict[Demand, Shares]:
    """The share of each kind of job. Nobody has one who asks for more than there is."""
    counts = Counter(demands)
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


def _places(demand: Demand, shares: Shares) -> dict[int, Place]:
    """The types that a job could run on."""
    by_type = enumerate(zip(demand.gpus, demand.speeds, shares, strict=True))
    return {gpu_type: Place(*place) for gpu_type, place in by_type if place[0]}


def _anywhere(state: State, job: Job, gpus_each: float) -> dict[int, Place]:
    """For a gang that is too large for any one type: as much time on all its GPUs as an equal part of them is worth."""
    gpus = float(job.gang.gpus_min)
    if not gpus or not ever(state.fit, job):
        return {}
    return {ELSEWHERE: Place(gpus, 1.0, round(min(1.0, gpus_each / gpus), DIGITS))}


def _lies_on(state: State, record: JobRecord, types: tuple[str, ...]) -> int | None:
    """The type of the devices that a job has and is not about to leave."""
    attempt = record.attempt
    if attempt is None or attempt.phase is Phase.STOPPING or attempt.key in state.to_stop:
        return None
    nodes = state.topology.nodes
    on = dict.fromkeys(nodes[booking.node].gpu_type for booking in attempt.bookings if booking.devices)
    return types.index(next(iter(on))) if len(on) == 1 else ELSEWHERE


def _settle(state: State, contender: Contender, now: int) -> None:
    """Works out what a contender is owed."""
    memory, job = state.memory, contender.job
    if job not in memory["owed"]:
        contender.welcome(memory["round_ms"])
        return
    attempt = state.jobs[job].attempt
    elapsed_ms = now - memory["began_ms"]
    received_ms = min(attempt.executed_ms(now), elapsed_ms) if attempt is not None else 0
    contender.settle(memory["owed"][job], memory["shares"][job], Spans(memory["round_ms"], elapsed_ms, received_ms))


def _keep_who_cannot_move(state: State, types: tuple[str, ...], contenders: list[Contender], choice: Choice) -> None:
    """Leaves those where they are who would find no place on their targets once everybody is where they should be."""
    by_job = {contender.job: contender for contender in contenders}
    going = [by_job[job] for job in choice.order if by_job[job].lies_on != choice.targets.get(job, ELSEWHERE)]
    if not any(_moves(contender, choice) for contender in going):
        return
    with Trial(state) as trial:
        for contender in going:
            attempt = state.jobs[contender.job].attempt
            if attempt is not None and attempt.phase is Phase.RUNNING:
                trial.release(attempt.bookings)
        for contender in going:
            target = choice.targets.get(contender.job, ELSEWHERE)
            if target == ELSEWHERE:
                continue
            record = state.jobs[contender.job]
            on_type = replace(record.job, gang=confined(record.job.gang, types[target]))
            if trial.seat(replace(record, asked=on_type)) is None and _moves(contender, choice):
                del choice.targets[contender.job]


def _moves(contender: Contender, choice: Choice) -> bool:
    """Whether a job that runs is targeted at another type for its own sake."""
    target = choice.targets.get(contender.job)
    return target not in (None, ELSEWHERE, contender.lies_on) and bool(contender.speed) and contender.gains_on(target)


def _content(contenders: list[Contender]) -> bool:
    """Whether nobody waits, nor would move."""
    return all(
        contender.lies_on is not None
        and not any(contender.gains_on(gpu_type) for gpu_type, place in contender.places.items() if place.share)
        for contender in contenders
    )


def _stuck(state: State, contenders: list[Contender]) -> bool:
    """Whether nobody found a place in the last round, and so nobody would in the next: others must leave first."""
    return all(contender.lies_on is None and contender.job in state.memory["ranks"] for contender in contenders)


def _entries(state: State, contender: Contender, choice: Choice) -> Iterator[tuple[str, float]]:
    """What the Advice says of one job."""
    job = contender.job
    yield f"owed {job}", float(contender.owed_ms)
    for gpu_type, place in contender.places.items():
        if place.share:
            yield f"share {gpu_type} {job}", place.share
    target = choice.targets.get(job)
    if target is not None:
        yield f"target {job}", float(target)
        if contender.lies_on not in (None, target):
            yield f"stray {job}", float(state.jobs[job].opened[1])
        if _moves(contender, choice):
            yield f"move {job}", float(state.jobs[job].opened[1])
