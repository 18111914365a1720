"""Evidence: who holds what a job waits for, and how what is free is spread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from phalanx.cluster.bits import members
from phalanx.cluster.cluster import NODE, Health
from phalanx.engine.change import Other
from phalanx.engine.heads import whole_key
from phalanx.engine.records import FOREVER_MS, AttemptRecord, JobRecord
from phalanx.engine.state import State
from phalanx.placement.place import largest_task
from phalanx.policy.policy import Targets
from phalanx.workload.gang import Role
from phalanx.workload.job import Job

HOLDERS_MAX = 16
"""Holders that are named one by one: those who are expected to leave first."""


@dataclass(frozen=True, slots=True)
class Held:
    """What the jobs of one queue hold of the nodes a job could use."""

    queue: str
    gpus: int
    jobs: int


@dataclass(frozen=True, slots=True)
class Block:
    """The domain of a level in which most GPUs can be had in whole tasks of the job, and how many."""

    level: str
    name: str
    gpus: int


@dataclass(frozen=True, slots=True)
class Budget:
    """A queue's GPU time: what it has had, of what it may have."""

    queue: str
    spent_gpu_ms: int
    budget_gpu_ms: int


@dataclass(frozen=True, slots=True)
class Spared:
    """Somebody who would give way, but runs for at least as long as its queue lets everybody run: until then."""

    job: str
    queue: str
    gpus: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Reserved:
    """Somebody for whom devices are reserved, and from when on."""

    other: Other
    at_ms: int


def spent_budgets(state: State, queue: str) -> tuple[Budget, ...]:
    """The budgets that are used up, of a queue and of those it lies in, from the inside out."""
    found = (
        Budget(account.path, state.spending.spent(account.path, state.now) // 1000, account.queue.budget_gpu_ms)
        for account in state.quotas.accounts[queue].upwards()
        if account.queue.budget_gpu_ms is not None
    )
    return tuple(budget for budget in found if budget.spent_gpu_ms >= budget.budget_gpu_ms)


def spared_for(state: State, record: JobRecord) -> tuple[Spared, ...]:
    """Those who would give way to a job if they had run for long enough, who has first first."""
    queues = [account.queue for account in state.quotas.accounts.values()]
    if not any(queue.min_run_ms or queue.min_run_reclaim_ms for queue in queues):
        return ()
    found = []
    for attempt in state.attempts_present():
        since_ms = attempt.started_ms
        least_ms = state.quotas.least_run_ms(record.job.queue, attempt.job.queue)
        is_spared = since_ms >= 0 and state.now - since_ms < least_ms
        if is_spared and attempt.stoppable and not attempt.ceding and would_yield(state, record, attempt):
            found.append(Spared(attempt.job.id, attempt.job.queue, attempt.gpus, since_ms + least_ms))
    return tuple(sorted(found, key=lambda each: (each.until_ms, each.job)))


def would_yield(state: State, record: JobRecord, attempt: AttemptRecord) -> bool:
    """Whether an attempt would give way to a job, were it not for the time that its queue lets everybody run."""
    if record.job.queue != attempt.job.queue and attempt.job.id in record.made_way_for:
        return False
    if state.may_yield(record, attempt):
        return True
    ranks = state.policy.targets is not Targets.KEEP and record.job.queue == attempt.job.queue
    return ranks and state.order(state.jobs[attempt.job.id]) > state.key(record)


def reserved_for(state: State, record: JobRecord) -> tuple[Reserved, ...]:
    """Those before a job for whom something is reserved before it would have ended, on nodes that it could use."""
    end_ms, key, reach = state.now + record.estimate_ms, whole_key(state, record), _reach(state, record)
    topology = state.topology
    return tuple(
        Reserved(other(state, each.job), each.at_ms)
        for each in state.reservations
        if each.job != record.job.id
        and each.at_ms < end_ms
        and whole_key(state, state.jobs[each.job]) < key
        and any(topology.bit[topology.number[slot.node]] & reach for slot in each.placement.slots)
    )


def other(state: State, job: str) -> Other:
    """Another job as evidence."""
    record = state.jobs[job]
    attempt = record.attempt
    if attempt is None:
        return Other(job, record.job.queue, record.gpus)
    return Other(job, record.job.queue, attempt.gpus, expected_end_ms(state, attempt), attempt.number)


def expected_end_ms(state: State, attempt: AttemptRecord) -> int | None:
    """When an attempt will have ended by what is known of its length; None if nothing is, or it runs longer."""
    record = state.jobs[attempt.job.id]
    left_ms = record.estimate_ms - record.executed_ms(state.now)
    if left_ms >= FOREVER_MS // 2 or left_ms <= 0:
        return None
    return state.now + left_ms


def holders(state: State, record: JobRecord) -> list[Other]:
    """Those who hold anything of the nodes that a job could use, who leaves first first; GPUs there only."""
    found: dict[str, AttemptRecord] = {}
    gpus: dict[str, int] = {}
    reach = _reach(state, record)
    for node in members(reach):
        for attempt in state.on_node.get(node, {}).values():
            found[attempt.key] = attempt
    for key, attempt in found.items():
        gpus[key] = sum(each.devices.bit_count() for each in attempt.bookings if reach >> each.node & 1)
    others = (
        Other(each.job.id, each.job.queue, gpus[key], expected_end_ms(state, each), each.number)
        for key, each in found.items()
    )
    return sorted(others, key=_leaves_first)


def _leaves_first(holder: Other) -> tuple[int, int, str]:
    end_ms = holder.expected_end_ms
    return (FOREVER_MS if end_ms is None else end_ms, -holder.gpus, holder.job)


def by_queue(holding: list[Other]) -> tuple[Held, ...]:
    """Holders added up, the queue that holds most first."""
    sums: dict[str, tuple[int, int]] = {}
    for holder in holding:
        gpus, jobs = sums.get(holder.queue, (0, 0))
        sums[holder.queue] = (gpus + holder.gpus, jobs + 1)
    held = (Held(queue, gpus, jobs) for queue, (gpus, jobs) in sums.items())
    return tuple(sorted(held, key=lambda each: (-each.gpus, each.queue)))


def free_by_node(state: State, record: JobRecord) -> tuple[tuple[int, int], ...]:
    """(free GPUs, nodes that have so many), the most first, of the healthy nodes the largest task could use."""
    nodes = _usable(state, record)
    counted = ((free, (nodes & having).bit_count()) for free, having in enumerate(state.capacity.with_free))
    return tuple((free, count) for free, count in reversed(list(counted)) if free and count)


def largest_block(state: State, record: JobRecord) -> Block | None:
    """Where most of a gang would fit together; None for a gang without GPUs."""
    task, _ = largest_task(record.asked)
    if not task.gpus:
        return None
    level = rule_of(record.asked)
    passing = _usable(state, record)
    free = state.capacity.free
    if level not in state.topology.domains:
        node = max(members(passing), key=lambda each: free[each].bit_count(), default=None)
        return Block(NODE, state.topology.nodes[node].name, free[node].bit_count()) if node is not None else None
    best: tuple[int, str] | None = None
    for domain in state.topology.domains[level]:
        gpus = sum(free[node].bit_count() // task.gpus * task.gpus for node in members(domain.nodes & passing))
        if best is None or gpus > best[0]:
            best = (gpus, domain.name)
    return Block(level, best[1], best[0]) if best is not None else None


def rule_of(job: Job) -> str:
    """The level a gang, or each replica of its first role that has a rule, must lie in; empty if there is none."""

    def walk(roles: tuple[Role, ...]) -> Iterator[str]:
        for role in roles:
            yield role.topology.required
            yield from walk(role.members)

    return job.gang.topology.required or next(filter(None, walk(job.gang.roles)), "")


def unhealthy(state: State, record: JobRecord) -> tuple[tuple[str, str], ...]:
    """Nodes the job could use if they were healthy, and what is wrong with them."""
    health = state.capacity.health
    return tuple(
        (state.topology.nodes[node].name, _ailment(state, node))
        for node in members(_eligible(state, record))
        if health[node] is not Health.HEALTHY
    )


def _ailment(state: State, node: int) -> str:
    return "in maintenance" if state.topology.nodes[node].name in state.closed else state.capacity.health[node].value


def _eligible(state: State, record: JobRecord) -> int:
    """Nodes that could ever take a task of the job."""
    nodes = 0
    for task in record.tasks.values():
        nodes |= state.fit.ask(task, record.asked).eligible
    return nodes


def _reach(state: State, record: JobRecord) -> int:
    return _eligible(state, record) & state.capacity.open


def _usable(state: State, record: JobRecord) -> int:
    """Healthy nodes that could ever take the largest task."""
    task, _ = largest_task(record.asked)
    return state.fit.ask(task, record.asked).eligible & state.capacity.open
