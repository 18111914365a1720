"""The adviser of policy gavel: solves for the shares of all jobs, and says which runs where in the next round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace

from phalanx.advice.allocation import DIGITS, Demand, Goal, Shares, allocate
from phalanx.advice.cheapest import cheapest
from phalanx.advice.present import present_jobs
from phalanx.advice.rounds import ELSEWHERE, Choice, Contender, Place, Spans, choose
from phalanx.advice.solver import NotSolvedError, solver
from phalanx.cluster.bits import members
from phalanx.cluster.cluster import commonest_type
from phalanx.engine.state.records import FOREVER_MS, JobRecord, Phase
from phalanx.engine.state.state import State
from phalanx.engine.transaction.transaction import Transaction
from phalanx.errors import PhalanxError
from phalanx.placement.fit import Fit
from phalanx.placement.place import ever
from phalanx.policy.gavel import confined, placed_on
from phalanx.protocol.event import Advice
from phalanx.workload.family import BASE, relative_speed
from phalanx.workload.gang import Role, Task
from phalanx.workload.job import Job
from phalanx.workload.pairing import HALF_MARK, may_pair, pair_speed
from phalanx.workload.throughputs import Throughputs

WEIGHT_LABEL = "weight"
"""The label of a job that says how many times the share of other jobs it is due."""


UNKNOWN_LEFT_MS = 3_600_000
"""What is taken to be left of a job of which nothing is known, or as long as it has run, if that is more."""


class PriceMissingError(PhalanxError):
    """What GPUs cost matters, and is not said."""


class Gavel:
    """Answers for one State after the other. What it keeps from one to the next only saves time."""

    def __init__(self, throughputs: Throughputs | None = None) -> None:
        solver()
        self._throughputs = throughputs
        self._fit: Fit | None = None
        self._speeds = _Speeds(throughputs, "")
        self._kinds: dict[Hashable, tuple[Demand | None, float]] = {}

    def __call__(self, state: State, now: int) -> Advice:
        """The round that begins now. Where no solution is found the last answer is kept, which is told, too."""
        try:
            return self._round(state, now)
        except NotSolvedError:
            return Advice("gavel", {"kept": 1.0})

    def _round(self, state: State, now: int) -> Advice:
        types = _types(state)
        capacity = _capacity(state, types)
        goal = _goal(state, types)
        columns = (*types, *(f"{name}{HALF_MARK}" for name in types)) if goal.rows else types
        contenders, outcasts = self._contenders(state, columns, capacity, goal)
        for contender in contenders:
            _settle(state, contender, now)
        choice = choose(contenders, capacity, goal.rows)
        _keep_unmovable(state, columns, contenders, choice)
        body = {f"type {name}": float(number) for number, name in enumerate(columns)}
        if len(choice.targets) == len(contenders):
            body["calm"] = 1.0
        if _content(contenders) or _stuck(state, contenders):
            body["rest"] = 1.0
        body.update((f"rank {job}", float(rank)) for rank, job in enumerate(choice.order))
        for contender in contenders:
            body.update(_entries(state, contender, choice))
        if goal.prices:
            body.update((f"only {job}", float(_cheapest_type(demand, goal))) for job, demand in outcasts.items())
            for contender in contenders:
                if contender.job not in choice.targets and ELSEWHERE not in contender.places:
                    places = contender.places
                    body[f"only {contender.job}"] = float(max(places, key=lambda k: places[k].share))
        return Advice("gavel", body)

    def _contenders(
        self, state: State, columns: tuple[str, ...], capacity: tuple[float, ...], goal: Goal
    ) -> tuple[list[Contender], dict[str, Demand]]:
        """All jobs with a share, with that; and those without, though there are GPUs that they could use."""
        present = sorted(present_jobs(state), key=lambda record: record.number)
        types = columns[: len(capacity)]
        asked = [(record, self._kind(state, record.job, types)[0]) for record in present]
        if goal.rows:
            asked = [(record, demand and _with_halves(demand, record.job, types)) for record, demand in asked]
        if goal.objective != "fairness":
            said = [self._kind(state, record.job, types)[1] for record in present]
            asked = [
                (
                    record,
                    demand and _timed(state, record, demand, speed, _on_equal_part(demand, capacity, len(present))),
                )
                for (record, demand), speed in zip(asked, said, strict=True)
            ]
        shares = _shares([demand for _, demand in asked if demand is not None], capacity, goal)
        found: list[Contender] = []
        outcasts: dict[str, Demand] = {}
        for record, demand in asked:
            if demand is not None:
                places = _places(demand, shares[demand])
            else:
                places = _anywhere(state, record.job, sum(capacity) / len(present))
            if any(place.share for place in places.values()):
                found.append(Contender(record.job.id, record.number, places, _lies_on(state, record, columns)))
            elif demand is not None:
                outcasts[record.job.id] = demand
        return found, outcasts

    def _kind(self, state: State, job: Job, types: tuple[str, ...]) -> tuple[Demand | None, float]:
        """What a job asks for, and at which speed it takes as long as it says: worked out once for all of its kind."""
        if self._fit is not state.fit:
            self._fit, self._kinds = state.fit, {}
            self._speeds = _Speeds(self._throughputs, commonest_type(state.cluster))
        kind = (job.gang, job.node_selector, job.tolerations, job.labels)
        if kind not in self._kinds:
            self._kinds[kind] = _demand(state, job, types, self._speeds), self._speeds.said(job)
        return self._kinds[kind]


@dataclass(frozen=True, slots=True)
class _Speeds:
    """How fast jobs are on GPU types, where a V100 is 1: as measured, else by the catalogue.

    What was measured may lack a V100, so it is told by the type that the duration of a job is of: the first that it
    names, else the one of which the cluster has most.
    """

    measured: Throughputs | None
    commonest: str

    def on(self, gpu_type: str, job: Job) -> float:
        """Of a job on a type."""
        if self.measured is None:
            return relative_speed(gpu_type, BASE, _label(job, "model"))
        return self._relative(gpu_type, self._reference(job), job) * self.said(job)

    def said(self, job: Job) -> float:
        """The one at which a job takes as long as it says."""
        return self._relative(self._reference(job), BASE, job)

    def _reference(self, job: Job) -> str:
        named = (task.gpu_types[0] for task, _ in _tasks(job.gang.roles, 1) if task.gpus and task.gpu_types)
        return next(named, self.commonest)

    def _relative(self, gpu_type: str, reference: str, job: Job) -> float:
        model, measured = _label(job, "model"), self.measured
        found = measured.relative(gpu_type, reference, model, job.gang.gpus_min) if measured is not None else None
        return relative_speed(gpu_type, reference, model) if found is None else found


def _goal(state: State, types: tuple[str, ...]) -> Goal:
    """What the policy is for."""
    told = state.memory["goal"]
    prices = _prices(state, types) if told["objective"] == "cost" else ()
    rows: tuple[int, ...] = ()
    if told["space_sharing"]:
        rows, prices = 2 * tuple(range(len(types))), 2 * prices
    return Goal(told["objective"], told["water_filling"], told["timeout_ms"] / 1000, prices, rows)


def _prices(state: State, types: tuple[str, ...]) -> tuple[float, ...]:
    """Dollars for an hour of a GPU of each type."""
    prices, gpus = dict.fromkeys(types, 0.0), dict.fromkeys(types, 0)
    for node in state.topology.nodes:
        if node.gpus:
            prices[node.gpu_type] += node.price_usd_h
            gpus[node.gpu_type] += node.gpus
    for gpu_type, price in prices.items():
        if not price:
            raise PriceMissingError(
                f"policy gavel: objective=cost needs what GPUs of type {gpu_type or '(none named)'} cost: "
                "give their nodes a price: in the cluster file"
            )
    return tuple(prices[gpu_type] / gpus[gpu_type] for gpu_type in types)


def _timed(state: State, record: JobRecord, demand: Demand, said: float, on_equal_part: float) -> Demand:
    """The demand with what is known of its time. Two digits will do, and let jobs that are nearly alike be one kind.

    `said` is the speed at which the job takes as long as it says.
    """
    executed_ms, estimate_ms = record.executed_ms(state.now), record.estimate_ms
    if estimate_ms >= FOREVER_MS:
        estimate_ms = executed_ms + max(executed_ms, UNKNOWN_LEFT_MS)
    left_ms = max(estimate_ms - executed_ms, 1000) * said
    until_ms = (record.job.deadline_ms or 0) - state.now
    return replace(
        demand,
        left_s=_two_digits(left_ms / 1000),
        elapsed_s=_two_digits((state.now - record.submitted_ms) / 1000),
        ideal_s=_two_digits(max(estimate_ms, executed_ms) * said / on_equal_part / 1000),
        least_speed=_two_digits(left_ms / until_ms) if until_ms > 0 else 0.0,
    )


def _on_equal_part(demand: Demand, capacity: tuple[float, ...], jobs: int) -> float:
    """The speed of a job on an equal part of the cluster, which is as mixed as all of it."""
    gpus_all = max(sum(capacity), 1.0)
    equal = sum(speed * gpus for speed, gpus in zip(demand.speeds, capacity, strict=False)) / gpus_all
    return max(equal, 1e-6) / max(1.0, demand.size * jobs / gpus_all)


def _with_halves(demand: Demand, job: Job, types: tuple[str, ...]) -> Demand:
    """The demand with halves of GPUs of every type that it could use, where a job may be one of a pair."""
    pairs = may_pair(job.gang)
    halves = [0.5 if pairs and gpus else 0.0 for gpus in demand.gpus]
    speeds = [
        speed * pair_speed(name) if half else 0.0
        for speed, half, name in zip(demand.speeds, halves, types, strict=True)
    ]
    return replace(demand, gpus=(*demand.gpus, *halves), speeds=(*demand.speeds, *speeds))


def _two_digits(value: float) -> float:
    return float(f"{value:.1e}")


def _cheapest_type(demand: Demand, goal: Goal) -> int:
    """The type on which a job does the most for a dollar."""
    able = [k for k, gpus in enumerate(demand.gpus) if gpus]
    return max(able, key=lambda k: demand.speeds[k] / (demand.gpus[k] * goal.prices[k]))


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


def _demand(state: State, job: Job, types: tuple[str, ...], known: _Speeds) -> Demand | None:
    """None if a job takes no GPUs, or more than one type could ever give it."""
    gpus, speeds = [], []
    for gpu_type in types:
        on_type = replace(job, gang=confined(job.gang, gpu_type)) if len(types) > 1 else job
        wanted = _gpus(state, on_type, gpu_type) if _may_use(job, gpu_type) and ever(state.fit, on_type) else 0.0
        gpus.append(wanted)
        speeds.append(known.on(gpu_type, job) if wanted else 0.0)
    return Demand(tuple(gpus), tuple(speeds), _weight(job)) if any(gpus) else None


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


def _shares(demands: list[Demand], capacity: tuple[float, ...], goal: Goal) -> dict[Demand, Shares]:
    """The share of each kind of job. A job that asks for more than there is has none."""
    counts = Counter(demands)
    there = tuple(capacity[row] for row in goal.rows) if goal.rows else capacity
    groups = [(_within(demand, there), demand) for demand in sorted(counts)]
    able = tuple((within, counts[demand]) for within, demand in groups if any(within.gpus))
    solved = cheapest(able, capacity, goal) if goal.objective == "cost" else allocate(able, capacity, goal)
    shares = dict.fromkeys(counts, (0.0,) * len(there))
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


def _lies_on(state: State, record: JobRecord, columns: tuple[str, ...]) -> int | None:
    """The type of the devices, or halves of them, that a job has and is not about to leave."""
    attempt = record.attempt
    if attempt is None or attempt.phase is Phase.STOPPING or attempt.key in state.to_stop:
        return None
    nodes = state.topology.nodes
    on = dict.fromkeys(nodes[booking.node].gpu_type for booking in attempt.bookings if booking.devices)
    if len(on) != 1:
        return ELSEWHERE
    name = next(iter(on))
    is_half = may_pair(record.job.gang) and any(booking.portion is not None for booking in attempt.bookings)
    return columns.index(f"{name}{HALF_MARK}" if is_half else name)


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


def _keep_unmovable(state: State, types: tuple[str, ...], contenders: list[Contender], choice: Choice) -> None:
    """Leaves jobs where they are that would find no place on their targets once all jobs are where they should be."""
    by_job = {contender.job: contender for contender in contenders}
    going = [by_job[job] for job in choice.order if by_job[job].lies_on != choice.targets.get(job, ELSEWHERE)]
    if not any(_moves(contender, choice) for contender in going):
        return
    with Transaction(state) as transaction:
        for contender in going:
            attempt = state.jobs[contender.job].attempt
            if attempt is not None and attempt.phase is Phase.RUNNING:
                transaction.release(attempt.bookings)
        for contender in going:
            target = choice.targets.get(contender.job, ELSEWHERE)
            if target == ELSEWHERE:
                continue
            record = state.jobs[contender.job]
            on_type = replace(record.job, gang=placed_on(record.job.gang, types[target]))
            if transaction.seat(replace(record, asked=on_type)) is None and _moves(contender, choice):
                del choice.targets[contender.job]


def _moves(contender: Contender, choice: Choice) -> bool:
    """Whether a job that runs is targeted at another type for its own sake."""
    target = choice.targets.get(contender.job)
    return target not in (None, ELSEWHERE, contender.lies_on) and bool(contender.speed) and contender.gains_on(target)


def _content(contenders: list[Contender]) -> bool:
    """Whether no job waits, nor would move."""
    return all(
        contender.lies_on is not None
        and not any(contender.gains_on(gpu_type) for gpu_type, place in contender.places.items() if place.share)
        for contender in contenders
    )


def _stuck(state: State, contenders: list[Contender]) -> bool:
    """Whether no job found a place in the last round, and so none would in the next: other jobs must leave first."""
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
