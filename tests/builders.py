"""Small clusters, jobs and worlds for tests, in few words."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from phalanx.cluster.cluster import NODE, Cluster, Health, Node
from phalanx.engine.quota.quotas import Quotas
from phalanx.engine.quota.spending import Spending
from phalanx.engine.state.ends import Ends
from phalanx.engine.state.history import History
from phalanx.engine.state.journal import Journal
from phalanx.engine.state.records import JobRecord, JobState
from phalanx.engine.state.running_order import RunningOrder
from phalanx.engine.state.state import State
from phalanx.engine.turn import record, replay, turn
from phalanx.engine.why.change import CLUSTER_CHANGES, Change, ChangeKind, altered, changed
from phalanx.engine.why.suppose import Supposition
from phalanx.placement.placement import Placement
from phalanx.protocol.action import Action, ActionId, Start, Stop
from phalanx.protocol.event import (
    Advice,
    AttemptEnded,
    ClusterChanged,
    ClusterDefined,
    Done,
    Event,
    Failed,
    JobChanged,
    JobHeld,
    JobReleased,
    JobSubmitted,
    Lost,
    NodeHealthChanged,
    Outcome,
    Progress,
)
from phalanx.protocol.plan import Plan
from phalanx.protocol.reason import Reason
from phalanx.simulate.run import Run
from phalanx.simulate.world.costs import NO_COSTS
from phalanx.simulate.world.virtual import Fault, VirtualBackend
from phalanx.simulate.world.work import Work
from phalanx.workload.array import members
from phalanx.workload.gang import ANYWHERE, Gang, Role, Task, Topology
from phalanx.workload.job import After, Array, Checkpointing, Dependency, Job, Kind

HEALTHS = [health for health in Health if health is not Health.SPARE]
"""What can be said of nodes: which are spares follows from the State."""


def racked(racks: int, nodes: int, gpus: int = 8, **node: Any) -> Cluster:
    """`racks` racks r0, r1, … of `nodes` nodes each; nodes are n0, n1, … through all racks."""
    return Cluster(
        tuple(Node(f"n{i}", (f"r{i // nodes}",), gpus, **node) for i in range(racks * nodes)), ("rack", NODE)
    )


def sockets(nodes: int, gpus: int = 8, split: tuple[tuple[str, int], ...] = (("socket", 2),), **node: Any) -> Cluster:
    """Equal nodes n0, n1, … that are split inside."""
    levels = (NODE, *(level for level, _ in split))
    return Cluster(tuple(Node(f"n{i}", (), gpus, split=split, **node) for i in range(nodes)), levels)


def within(level: str) -> Topology:
    return Topology(required=level)


def workers(count: int | tuple[int, int] = 1, gpus: int = 1, topology: Topology = ANYWHERE, **task: Any) -> Role:
    """A role `worker` of equal tasks; a pair of counts makes it elastic."""
    least, most = count if isinstance(count, tuple) else (count, count)
    return Role("worker", least, most, Task(gpus, **task), topology=topology)


def a_job(
    id: str,  # noqa: A002
    gpus: int = 1,
    count: int | tuple[int, int] = 1,
    required: str = "",
    preferred: str = "",
    task: dict[str, Any] | None = None,
    **job: Any,
) -> Job:
    """A job of `count` tasks of `gpus` GPUs each, which saves its work.

    `task` holds further fields of the Task, `job` those of the Job.
    """
    job.setdefault("checkpoint", Checkpointing(saves=True))
    return Job(id, Gang((workers(count, gpus, **(task or {})),), Topology(required, preferred)), **job)


def of_roles(id: str, *roles: Role, required: str = "", **job: Any) -> Job:  # noqa: A002
    """A job of several roles."""
    return Job(id, Gang(roles, Topology(required)), **job)


def array(job: Job, count: int, at_a_time: int = 0) -> tuple[Job, ...]:
    """The members of a job made an array."""
    values = {each.name: getattr(job, each.name) for each in fields(job)}
    return members(Job(**{**values, "array": Array(tuple(range(count)), at_a_time)}))


def after(job: str, on: str = "success") -> Dependency:
    return Dependency(job, After(on))


class World:
    """A State, its journal, and the actions nobody has answered yet. The test is the backend."""

    def __init__(self, cluster: Cluster, policy: str = "fifo") -> None:
        self.state = State()
        self.journal = Journal()
        self.asked: dict[ActionId, Action] = {}
        self.now = 0
        self.adviser: Callable[[State, int], Advice] | None = None
        record(self.state, self.journal, ClusterDefined(cluster, policy), 0)

    def turn(self, *events: Event, after_ms: int = 0) -> Plan:
        """Lets time pass, events happen, and the engine decide."""
        self.now += after_ms
        for event in events:
            self._forget(event)
        plan = turn(self.state, self.journal, self._happening(events), self.now)
        self.asked.update((action.id, action) for action in plan.actions)
        return plan

    def _happening(self, events: Iterable[Event]) -> Iterator[Event]:
        """What happens and, where somebody advises and it is time, what he says of it."""
        yield from events
        if self.adviser is not None:
            due_ms = self.state.policy.next_wakeup(self.state.memory, self.state.now)
            if due_ms is not None and due_ms <= self.now:
                yield self.adviser(self.state, self.now)

    def _forget(self, event: Event) -> None:
        if isinstance(event, Done | Failed | Lost):
            self.asked.pop(event.action, None)

    def submit(self, *jobs: Job, after_ms: int = 0) -> Plan:
        return self.turn(*map(JobSubmitted, jobs), after_ms=after_ms)

    def run(self, *jobs: Job, after_ms: int = 0) -> Plan:
        """Submits jobs and has their starts done."""
        self.submit(*jobs, after_ms=after_ms)
        return self.done(*(job.id for job in jobs))

    def asks(self, job: str) -> list[Action]:
        """What the backend has been asked for a job and has not answered, oldest first."""
        return [action for action in self.asked.values() if action.id.job == job]

    def done(self, *jobs: str, after_ms: int = 0) -> Plan:
        """Reports the latest action of each job done."""
        return self.turn(*(Done(self.asks(job)[-1].id) for job in jobs), after_ms=after_ms)

    def failed(self, job: str, reason: str = "no image", retryable: bool = True, after_ms: int = 0) -> Plan:
        return self.turn(Failed(self.asks(job)[-1].id, reason, retryable), after_ms=after_ms)

    def lost(self, job: str, after_ms: int = 0) -> Plan:
        return self.turn(Lost(self.asks(job)[-1].id), after_ms=after_ms)

    def end(self, job: str, outcome: Outcome = Outcome.SUCCEEDED, after_ms: int = 0) -> Plan:
        """Reports a job's present attempt ended."""
        return self.turn(AttemptEnded(job, self.job(job).attempts, outcome), after_ms=after_ms)

    def health(self, node: str, health: Health, after_ms: int = 0) -> Plan:
        return self.turn(NodeHealthChanged(node, health), after_ms=after_ms)

    def job(self, job: str) -> JobRecord:
        return self.state.record(job)

    def status(self, job: str) -> JobState:
        return self.job(job).state

    def reason(self, job: str) -> Reason | None:
        return self.state.reason(job)

    def where(self, job: str) -> dict[str, tuple[int, ...]]:
        """The devices a job's present attempt has on each node."""
        attempt = self.job(job).attempt
        return places(attempt.placement) if attempt else {}


def places(placement: Placement) -> dict[str, tuple[int, ...]]:
    """Devices by node."""
    found: dict[str, tuple[int, ...]] = {}
    for slot in placement.slots:
        found[slot.node] = tuple(sorted((*found.get(slot.node, ()), *slot.devices)))
    return found


def starts(plan: Plan) -> list[str]:
    """Jobs that are told to start."""
    return [action.id.job for action in plan.actions if isinstance(action, Start)]


def stops(plan: Plan) -> list[str]:
    """Jobs that are told to stop."""
    return [action.id.job for action in plan.actions if isinstance(action, Stop)]


def made(journal: Journal, job: str, change: Change) -> tuple[State, Plan]:
    """What a world is in which the change was made by the events that make it, and its next plan.

    No event has a job tried again before its time, or a policy give a queue more than it does: these are supposed.
    """
    state, journal = replay(Journal(list(journal.records))), Journal(list(journal.records))
    if change.kind in (ChangeKind.RETRY, ChangeKind.QUOTA):
        Supposition(state).impose(job, change)
        state.seq = len(journal.records) - 1
        return state, turn(state, journal, [], state.now)
    return state, turn(state, journal, events_of(state, job, change), state.now)


def events_of(state: State, job: str, change: Change) -> list[Event]:
    """The events that make a change."""
    if change.kind in CLUSTER_CHANGES:
        return [ClusterChanged(altered(state.cluster, change))]
    match change.kind:
        case ChangeKind.END:
            return [AttemptEnded(each.job, each.attempt, Outcome.SUCCEEDED) for each in change.ends]
        case ChangeKind.RELEASE:
            return [JobReleased(job)]
        case ChangeKind.REPAIR:
            return [NodeHealthChanged(node, Health.HEALTHY) for node in change.names]
        case ChangeKind.PASS:
            # Who is held stands before nobody, and nothing is kept for it.
            return [JobHeld(name) for name, each in state.jobs.items() if waits(each) and name != job]
    return [JobChanged(changed(state.jobs[job].job, change))]


def waits(record: JobRecord) -> bool:
    return record.attempt is None and record.final is None


NOT_COMPARED = (
    "fit",
    "gangs",
    "packing",
    "topology",
    "cluster",
    "policy",
    "digest",
    "capacity",
    "preemptible_gpus",
    "_settled_seq",
    "_views",
    "class_index",
    "made_way",
    "touched",
    "cells",
)
"""What is a cache, cannot change, or is compared by its own fingerprint."""


def everything(state: State) -> tuple[object, ...]:
    """All that a State holds, field by field: more than its fingerprint, for comparing two moments or two histories."""
    state.capacity.check()
    own = tuple((name, plain(value)) for name, value in vars(state).items() if name not in NOT_COMPARED)
    return (*own, state.fingerprint(), state.capacity.grown, state.capacity.idle)


def plain(value: Any) -> Any:
    """A value as nested tuples, with records taken apart into their fields."""
    if isinstance(value, dict):
        return tuple((plain(key), plain(each)) for key, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(plain(each) for each in value)
    if is_dataclass(value) and not isinstance(value, type) and not isinstance(value, Job | Placement):
        # Where an attempt stands is worked out anew as time passes.
        return tuple(plain(getattr(value, each.name)) for each in fields(value) if each.name != "standing")
    if isinstance(value, RunningOrder):
        return plain(sorted(value._places))
    if isinstance(value, Quotas | Spending | History):
        return value.fingerprint()
    if isinstance(value, Ends):
        return plain(value._order)
    if hasattr(value, "__slots__") and type(value).__module__ == "phalanx.engine.state.records":
        # What a class of waiting jobs could reach is remembered when first asked for.
        return tuple(plain(getattr(value, name)) for name in value.__slots__ if name not in ("asks", "reach"))
    return value


def random_cluster() -> Cluster:
    """Two racks of unlike nodes, some labelled, one tainted, with CPUs that bind."""
    nodes = []
    for i in range(8):
        nodes.append(
            Node(
                f"n{i}",
                (f"r{i // 4}",),
                8 if i % 3 else 4,
                "H100" if i % 2 else "A100",
                80.0,
                cpus_milli=64_000 if i % 4 else 16_000,
                labels=(("zone", "ab"[i % 2]),),
                split=(("socket", 2),),
            )
        )
    return Cluster(tuple(nodes), ("rack", NODE, "socket"))


def random_arrivals(seed: int, count: int) -> Iterator[tuple[int, Event]]:
    """`count` jobs of every kind over an hour or so, with progress, failing nodes and their repair."""
    chance = random.Random(seed)
    now = 0
    for i in range(count):
        now += chance.randrange(20_000)
        least = chance.choice([1, 1, 1, 2, 4])
        job = Job(
            f"j{i}",
            Gang(
                (
                    Role(
                        "worker",
                        least,
                        least * chance.choice([1, 1, 2]),
                        Task(chance.choice([0, 1, 1, 2, 4]), cpus_milli=chance.choice([1000, 2000, 4000])),
                    ),
                ),
                Topology(chance.choice(["", "", "rack", "node", "socket"]), chance.choice(["", "rack"])),
            ),
            kind=chance.choice([Kind.TRAINING, Kind.TRAINING, Kind.SERVICE]),
            priority=chance.choice([0, 0, 10, 100, 200, 300]),
            after=(Dependency(f"j{i - 7}", After.END),) if i % 11 == 10 else (),
            max_run_ms=600_000 if i % 13 == 12 else None,
            retry_limit=chance.choice([0, 2]),
        )
        yield now, JobSubmitted(job)
        if i % 5 == 4:
            yield now, Progress(f"j{chance.randrange(i)}", 1, step=i, durable_step=i, stop_cost_ms=500)
        if i % 50 == 30:
            yield now, NodeHealthChanged(f"n{i % 8}", chance.choice([Health.FAILED, Health.DRAINING]))
        if i % 50 == 40:
            yield now, NodeHealthChanged(f"n{(i - 10) % 8}", Health.HEALTHY)


def random_run(seed: int, count: int, policy: str = "priority") -> Run:
    """A finished run of `count` random jobs with starts that fail or get lost now and then."""
    chance = random.Random(seed + 1)
    durations = {f"j{i}": chance.randrange(1_000, 260_000) for i in range(count)}

    def fault(action: Action) -> Event | None:
        drawn = chance.random()
        if drawn < 0.05:
            return Failed(action.id, "bad luck", retryable=drawn < 0.04)
        return Lost(action.id) if drawn < 0.07 else None

    backend = virtual_backend(durations, start_ms=2_000, stop_ms=5_000, fault=fault)
    run = Run.of(random_cluster(), policy, backend, random_arrivals(seed, count))
    run.finish()
    return run


def jobs_of(arrivals: Iterable[tuple[int, Event]]) -> list[Job]:
    """The jobs among arrivals."""
    return [event.job for _, event in arrivals if isinstance(event, JobSubmitted)]


def virtual_backend(durations_ms: Mapping[str, int], fault: Fault | None = None, **costs_ms: int) -> VirtualBackend:
    """A backend in virtual time, where jobs last so long and nothing takes time but what is named."""
    works = {job: Work(duration_ms) for job, duration_ms in durations_ms.items()}
    return VirtualBackend(works, replace(NO_COSTS, **costs_ms), fault=fault)
