"""Evidence: which jobs hold what a job waits for, and how what is free is spread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import nsmallest
from typing import NamedTuple

from phalanx.cluster.bits import members
from phalanx.cluster.cluster import NODE, Cluster, Health
from phalanx.cluster.maintenance import Maintenance
from phalanx.engine.quota.account import QueueAccount
from phalanx.engine.quota.quotas import Quotas
from phalanx.engine.quota.shortfall import Shortfall
from phalanx.engine.reserve.quota_reservations import QuotaReservation
from phalanx.engine.state.records import FOREVER_MS, AttemptRecord, JobRecord, estimate_ms, usage_of
from phalanx.engine.state.state import State
from phalanx.engine.state.windows import too_soon, under_way
from phalanx.engine.state.yielding import has_made_way, may_yield
from phalanx.engine.why.change import Other
from phalanx.placement.place import largest_task, telling_task
from phalanx.policy.policy import Targets
from phalanx.policy.view import Usage
from phalanx.protocol.plan import Reservation
from phalanx.workload.gang import Role
from phalanx.workload.job import Job

HOLDERS_MAX = 16
"""Holders that are named one by one: those that are expected to leave first."""


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
class QuotaShort:
    """What a job lacks of its queue's quota, in thousandths of GPUs or CPUs, or MB.

    `at` is the queue whose limit or budget is used up; empty, the lendable quota is. Of what that may have at most
    (`limit`; None where the policy or a budget decides) some is `used`, some `kept` for queues to which it is
    guaranteed, and the job may have what is `left`. `most` is what its queue could ever have, where that is less than
    what is `asked`: then the job never starts. `held` and `holders` are the jobs that use it up.
    """

    queue: str
    at: str
    resource: int
    asked: int
    left: int
    by_limit: bool = False
    by_budget: bool = False
    limit: int | None = None
    used: int = 0
    kept: int = 0
    most: int | None = None
    held: tuple[Held, ...] = ()
    holders: tuple[Other, ...] = ()


@dataclass(frozen=True, slots=True)
class Spared:
    """A job that would yield, but runs for at least as long as its queue lets every job run: until then."""

    job: str
    queue: str
    gpus: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Reserved:
    """A job for which devices are reserved, and from when on; or what is left of the `limit` of a queue."""

    other: Other
    at_ms: int
    limit: str = ""


class Holding(NamedTuple):
    """Which jobs hold something: added up, the queue that holds most first, and those that leave first."""

    held: tuple[Held, ...]
    first: tuple[Other, ...]


def quota_short(state: State, record: JobRecord) -> QuotaShort | None:
    """What a job would exceed of its queue's quota, and what uses that up; None if it may have what it asks for."""
    short = state.shortfall(record)
    if short is None:
        return None
    quotas, most = state.quotas, None
    never = beyond_quota(quotas, record) if not short.by_budget else None
    if never is not None:
        most = quotas.upper_bound(short.queue, never)
        at = quotas.upper_bounds(short.queue, never)[0].at
        left = min(quotas.allowed(short.queue)[never], most)
        short = Shortfall(short.queue, at, never, record.need[never], left, by_limit=bool(at))
    resource, by_policy = short.resource, short.by_limit and not short.at
    account = quotas.accounts[short.queue if by_policy else short.at]
    limit = account.queue.limit[resource] if short.at else account.deserved[resource]
    limit = None if by_policy or short.by_budget else limit
    used = account.used[resource]
    kept = max(limit - used - max(short.left, 0), 0) if limit is not None else 0
    users = _users(state, account, resource)
    return QuotaShort(*short, limit, used, kept, most, users.held, users.first)


def beyond_quota(quotas: Quotas, record: JobRecord) -> int | None:
    """The first resource of which a job's queue could never have as much as the job needs; None if there is none."""
    for resource, amount in enumerate(record.need):
        if amount and amount > quotas.upper_bound(record.job.queue, resource):
            return resource
    return None


def stranded_by(state: State, cluster: Cluster) -> Iterator[str]:
    """Pending jobs that ask for more than their queues could ever have in another cluster, and not in this one."""
    then = Quotas(cluster)
    # Many jobs of a queue ask for the same.
    known: dict[tuple[str, Usage], bool] = {}
    for job, record in state.jobs.items():
        kind = (record.job.queue, record.need)
        if record.final is not None or record.attempt is not None or record.job.queue not in then.accounts:
            continue
        if kind not in known:
            could = not state.quotas or beyond_quota(state.quotas, record) is None
            known[kind] = could and beyond_quota(then, record) is not None
        if known[kind]:
            yield job


def _users(state: State, account: QueueAccount, resource: int) -> Holding:
    """Attempts of a queue, and of those inside, that have anything of a resource."""
    inside = dict.fromkeys(each.path for each in account.within)
    users = (
        (each, each.gpus)
        for each in state.attempts_present()
        if each.job.queue in inside and not each.ceding and usage_of(each.staying)[resource]
    )
    return _holding(state, users)


def lenders(state: State, queue: str, resource: int) -> tuple[str, ...]:
    """The queues that have not all that is guaranteed to them of a resource, but for a queue and those it lies in."""
    around = dict.fromkeys(account.path for account in state.quotas.accounts[queue].trail)
    return tuple(
        path
        for path, account in state.quotas.accounts.items()
        if path not in around and (account.queue.guaranteed[resource] or 0) > account.used[resource]
    )


def spent_budgets(state: State, queue: str) -> tuple[Budget, ...]:
    """The budgets that are used up, of a queue and of those it lies in, from the inside out."""
    found = (
        Budget(account.path, state.spending.spent(account.path, state.now) // 1000, account.queue.budget_gpu_ms)
        for account in state.quotas.accounts[queue].upwards()
        if account.queue.budget_gpu_ms is not None
    )
    return tuple(budget for budget in found if budget.spent_gpu_ms >= budget.budget_gpu_ms)


def spared_for(state: State, record: JobRecord) -> tuple[Spared, ...]:
    """Attempts that would yield to a job if they had run for long enough, the first to have first."""
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
    """Whether an attempt would yield to a job, were it not for the time that its queue lets every job run."""
    if record.job.queue != attempt.job.queue and has_made_way(state, record, attempt):
        return False
    if may_yield(state, record, attempt):
        return True
    ranks = state.policy.targets is not Targets.KEEP and record.job.queue == attempt.job.queue
    return ranks and state.order(state.jobs[attempt.job.id]) > state.rank(record)


def reserved_for(state: State, record: JobRecord, before: Iterable[Reservation]) -> tuple[Reserved, ...]:
    """Of the reservations before a job, those on nodes that it could use."""
    topology, reach = state.topology, _reach(state, record)
    return tuple(
        Reserved(other(state, each.job), each.at_ms)
        for each in before
        if any(topology.bit[topology.number[slot.node]] & reach for slot in each.placement.slots)
    )


def kept_for(state: State, holds: Iterable[QuotaReservation]) -> tuple[Reserved, ...]:
    """Jobs for which what is left of a limit is kept from now on."""
    kept = dict.fromkeys((hold.late.job.id, hold.limit) for hold in holds)
    return tuple(Reserved(other(state, late), state.now, limit) for late, limit in kept)


def other(state: State, job: str) -> Other:
    """Another job as evidence."""
    record = state.jobs[job]
    attempt = record.attempt
    if attempt is None:
        return Other(job, record.job.queue, record.gpus)
    return Other(job, record.job.queue, attempt.gpus, expected_end_ms(state, attempt), attempt.number)


def expected_end_ms(state: State, attempt: AttemptRecord) -> int | None:
    """When an attempt will have ended by what its job says; None if that says nothing, or it runs longer.

    What decisions expect of a job that says nothing, by jobs like it, is no promise of when it ends.
    """
    record = state.jobs[attempt.job.id]
    left_ms = estimate_ms(record.job) - record.executed_ms(state.now)
    if left_ms >= FOREVER_MS // 2 or left_ms <= 0:
        return None
    return state.now + left_ms


def holders(state: State, record: JobRecord) -> Holding:
    """Attempts that hold anything of the nodes that a job could use; GPUs there only."""
    found: dict[str, AttemptRecord] = {}
    reach = _reach(state, record)
    for node in members(reach):
        found |= state.on_node.get(node, {})
    bit = state.topology.bit
    return _holding(
        state,
        (
            (each, sum([booking.devices.bit_count() for booking in each.bookings if reach & bit[booking.node]]))
            for each in found.values()
        ),
    )


def _holding(state: State, having: Iterable[tuple[AttemptRecord, int]]) -> Holding:
    """Adds attempts and their GPUs up by queue, and finds those that leave first: of thousands only these are told."""
    sums: dict[str, tuple[int, int]] = {}
    leaving: list[tuple[int, int, str, int, AttemptRecord]] = []
    for attempt, gpus in having:
        before, jobs = sums.get(attempt.job.queue, (0, 0))
        sums[attempt.job.queue] = (before + gpus, jobs + 1)
        end_ms = expected_end_ms(state, attempt)
        leaving.append((FOREVER_MS if end_ms is None else end_ms, -gpus, attempt.job.id, attempt.number, attempt))
    held = (Held(queue, gpus, jobs) for queue, (gpus, jobs) in sums.items())
    first = (
        Other(job, attempt.job.queue, -gpus, expected_end_ms(state, attempt), number)
        for _, gpus, job, number, attempt in nsmallest(HOLDERS_MAX, leaving)
    )
    return Holding(tuple(sorted(held, key=lambda each: (-each.gpus, each.queue))), tuple(first))


def free_by_node(state: State, record: JobRecord) -> tuple[tuple[int, int], ...]:
    """(free GPUs, nodes that have so many), the most first, of the healthy nodes the task that tells could use.

    They add up to the free GPUs that a refusal counts.
    """
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


def in_the_way(state: State, record: JobRecord) -> list[Maintenance]:
    """Maintenance that a job would run into, and what has closed nodes that it could use."""
    number, bit, eligible = state.topology.number, state.topology.bit, _eligible(state, record)
    closing = dict.fromkeys(window.name for window in too_soon(state, record))
    closed = (window for window in under_way(state) if any(bit[number[node]] & eligible for node in window.nodes))
    names = closing | dict.fromkeys(window.name for window in closed)
    return [window for window in state.cluster.maintenance if window.name in names]


def repairable(state: State, record: JobRecord) -> tuple[str, ...]:
    """Nodes the job could use if they were healthy, and that neither maintenance nor others' recovery keeps closed."""
    number, health = state.topology.number, state.capacity.health
    ailing = (node for node, _ in unhealthy(state, record) if node not in state.closed)
    return tuple(node for node in ailing if health[number[node]] is not Health.SPARE)


def unhealthy(state: State, record: JobRecord) -> tuple[tuple[str, str], ...]:
    """Nodes the job could use, or use more of, if they were healthy, and what is wrong with them."""
    health, without = state.capacity.health, state.capacity.unhealthy
    return tuple(
        (state.topology.nodes[node].name, _ailment(state, node))
        for node in members(_eligible(state, record))
        if health[node] is not Health.HEALTHY or without[node]
    )


def _ailment(state: State, node: int) -> str:
    if state.topology.nodes[node].name in state.closed:
        return "in maintenance"
    health = state.capacity.health[node]
    return health.value if health is not Health.HEALTHY else _devices_out(state, node)


def _devices_out(state: State, node: int) -> str:
    """What is wrong with single GPUs of a node that is well itself."""
    by_health: dict[str, list[str]] = {}
    for device in members(state.capacity.unhealthy[node]):
        by_health.setdefault(state.capacity.device_health[node, device].value, []).append(str(device))
    return "; ".join(
        f"GPU{'s' if len(devices) > 1 else ''} {', '.join(devices)} {health}" for health, devices in by_health.items()
    )


def _eligible(state: State, record: JobRecord) -> int:
    """Nodes that could ever take a task of the job."""
    nodes = 0
    for task in record.tasks.values():
        nodes |= state.fit.ask(task, record.asked).eligible
    return nodes


def _reach(state: State, record: JobRecord) -> int:
    return _eligible(state, record) & state.capacity.open


def _usable(state: State, record: JobRecord) -> int:
    """Healthy nodes that could ever take the task that tells; none, if there is a task that no node could take."""
    asks = [state.fit.ask(task, record.asked) for task in record.tasks.values()]
    if not all(ask.eligible for ask in asks):
        return 0
    task = telling_task(state.fit, record.asked)
    return state.fit.ask(task, record.asked).eligible & state.capacity.open
