"""Explaining: why a job is pending, with the counts behind it. Worked out on request; text is made at the edge."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace

from phalanx.cluster.maintenance import Maintenance
from phalanx.engine.state.records import JobRecord, JobState
from phalanx.engine.state.state import State
from phalanx.engine.transaction.transaction import Transaction
from phalanx.engine.why.cells_view import VirtualClusterView, view_of
from phalanx.engine.why.change import Change, Other
from phalanx.engine.why.evidence import (
    Block,
    Budget,
    Held,
    QuotaShort,
    Reserved,
    Spared,
    free_by_node,
    holders,
    in_the_way,
    largest_block,
    other,
    quota_short,
    spared_for,
    spent_budgets,
    unhealthy,
)
from phalanx.engine.why.position import Position, position
from phalanx.engine.why.preferred import Preferred, preferred
from phalanx.engine.why.present import present
from phalanx.placement.place import largest_task, refusal
from phalanx.placement.placement import Refusal
from phalanx.placement.refusals.misfit import Misfit, misfit
from phalanx.placement.refusals.shortage import Shortage, shortage
from phalanx.policy.factor import Factor
from phalanx.protocol.reason import Reason

OF_DEVICES = (Reason.GPUS, Reason.TOPOLOGY, Reason.FRAGMENTED)
"""Reasons by which too few devices, or parts of them, are free where they are wanted."""


@dataclass(frozen=True, slots=True)
class Next:
    """What would be with the dominant cause out of the way: the reason then, or None if the job would start."""

    change: Change
    reason: Reason | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """One dominant reason and its evidence.

    `refusal` counts the nodes each predicate rules out, in turn. `misfit` is what could never hold the job, even idle,
    and what it would have to be; `shortage` is what keeps the parts of devices that it asks for off those there are.
    `held` adds up by queue what jobs hold of the nodes the job could use, `holders` names those of them that are
    expected to leave first. `task_gpus` is what its largest task needs on one node; `free` says how many nodes have how
    many free GPUs, `block` where most of the job would fit together. `quota` is what its queue may not have, and what
    is left of it; `budgets` are those that are used up. `spared` are the jobs that would yield to it once they have run
    for the `min_run` of their queues. `reserved_for` are jobs before it for which something it could use is reserved
    before it would end. `failed_starts` and `failed_runs` are how often it has failed to start since it last ran, and
    how often while it ran; `wasted` is how many attempts in a row have crashed within minutes since others were
    preempted for it. `maintenance` is what it would run into on the nodes that would take it. `overdue_ms` is for
    how long it has waited longer than it should: it goes before all jobs, and devices are reserved for it. `factors`
    are what its place in the order adds up from, where the policy adds up; `position` is that place, and what its queue
    is compared by. `changes` have each been tried and would give the job its devices at once; those of one kind by the
    smallest step. `next` is what it would wait for then. `preferred` are nodes that it
    likes more than others.
    """

    job: str
    state: JobState
    reason: Reason | None = None
    refusal: Refusal | None = None
    misfit: Misfit | None = None
    shortage: Shortage | None = None
    behind: Other | None = None
    waits_for: tuple[Other, ...] = ()
    not_before_ms: int | None = None
    fits_now: bool = False
    held: tuple[Held, ...] = ()
    holders: tuple[Other, ...] = ()
    task_gpus: int = 0
    free: tuple[tuple[int, int], ...] = ()
    block: Block | None = None
    unhealthy: tuple[tuple[str, str], ...] = ()
    quota: QuotaShort | None = None
    budgets: tuple[Budget, ...] = ()
    spared: tuple[Spared, ...] = ()
    reserved_for: tuple[Reserved, ...] = ()
    failed_starts: int = 0
    failed_runs: int = 0
    wasted: int = 0
    virtual_cluster: VirtualClusterView | None = None
    maintenance: tuple[Maintenance, ...] = ()
    overdue_ms: int | None = None
    impatient: bool = False
    factors: tuple[Factor, ...] = ()
    position: Position | None = None
    changes: tuple[Change, ...] = ()
    next: Next | None = None
    preferred: Preferred | None = None

    @property
    def is_hopeless(self) -> bool:
        """Whether it waits for what cannot come, unless it or the cluster is changed."""
        beyond_its_queue = self.reason is Reason.QUOTA and self.quota is not None and self.quota.most is not None
        return beyond_its_queue or self.reason in (Reason.NEVER_FITS, Reason.DEPENDENCY_FAILED)


def explain(state: State, job: str) -> Explanation:
    """Why a job is where it is. An unknown id raises ValueError."""
    record = state.record(job)
    now = present(state, job)
    reason = now.reason
    likes = preferred(state, record) if record.job.preferences else None
    plain = Explanation(job, record.state, reason, reserved_for=now.reserved_for, preferred=likes)
    if reason is None or reason is Reason.PREPARING:
        return plain
    if reason is Reason.MAKING_ROOM:
        return replace(plain, waits_for=_leaving_for(state, job))
    if reason in (Reason.DEPENDENCY, Reason.DEPENDENCY_FAILED):
        return replace(plain, waits_for=tuple(other(state, each.job) for each in record.job.after))
    if reason is Reason.BEGIN_TIME:
        return replace(plain, not_before_ms=record.job.begin_ms)
    if reason is Reason.BACKOFF:
        return replace(
            plain,
            not_before_ms=record.not_before_ms,
            failed_starts=record.start_failures,
            failed_runs=record.failures,
            wasted=record.wasted,
        )
    if record.parked is not None:
        return plain
    return _lacking(state, plain)


def _leaving_for(state: State, job: str) -> tuple[Other, ...]:
    """Attempts that must have left before a claim can start."""
    attempt = state.jobs[job].attempt
    assert attempt is not None, f"{job} makes room without an attempt"
    nodes = dict.fromkeys(booking.node for booking in attempt.bookings)
    leaving = (each for key, each in state.leaving.items() if any(key in state.on_node.get(node, {}) for node in nodes))
    return tuple(other(state, each.job.id) for each in leaving)


def _lacking(state: State, plain: Explanation) -> Explanation:
    record = state.jobs[plain.job]
    reason = plain.reason
    with Transaction(state) as transaction:
        fits = transaction.seat(record) is not None
        fits_at_last = fits or (reason is Reason.MAINTENANCE and transaction.seat_at_last(record) is not None)
    evidence = None if fits_at_last else refusal(state.fit, record.asked)
    holding = holders(state, record)
    return replace(
        plain,
        reason=reason,
        refusal=evidence,
        misfit=misfit(state.fit, record.asked) if reason is Reason.NEVER_FITS else None,
        shortage=shortage(state.fit, record.asked) if evidence is not None and reason in OF_DEVICES else None,
        behind=other(state, state.head) if reason is Reason.BEHIND and state.head else None,
        fits_now=fits,
        held=holding.held,
        holders=holding.first,
        task_gpus=largest_task(record.asked)[0].gpus,
        free=free_by_node(state, record),
        block=largest_block(state, record),
        unhealthy=unhealthy(state, record),
        quota=quota_short(state, record),
        budgets=spent_budgets(state, record.job.queue) if reason is Reason.BUDGET else (),
        spared=spared_for(state, record),
        virtual_cluster=view_of(state, record),
        overdue_ms=_overdue_ms(state, record) if record.overdue else None,
        impatient=record.impatient,
        factors=state.policy.factors(record, state),
        position=position(state, record),
        maintenance=tuple(in_the_way(state, record)) if reason is Reason.MAINTENANCE else (),
    )


def _overdue_ms(state: State, record: JobRecord) -> int:
    """For how long a job has waited longer than it should."""
    return state.now - record.passed_since_ms - state.wait_ms(record)


def redacted(explanation: Explanation, visible_queues: Container[str]) -> Explanation:
    """The same for a user that may know the jobs of some queues only.

    Of jobs of other queues stay the queue, the number of GPUs and the expected end.
    """

    def shown(each: Other) -> Other:
        return each if each.queue in visible_queues else replace(each, job="", attempt=0)

    def all_shown(others: tuple[Other, ...]) -> tuple[Other, ...]:
        return tuple(shown(each) for each in others)

    def change_shown(change: Change) -> Change:
        return replace(change, ends=all_shown(change.ends))

    def spared_shown(each: Spared) -> Spared:
        return each if each.queue in visible_queues else replace(each, job="")

    after, quota = explanation.next, explanation.quota
    return replace(
        explanation,
        quota=replace(quota, holders=all_shown(quota.holders)) if quota is not None else None,
        spared=tuple(spared_shown(each) for each in explanation.spared),
        reserved_for=tuple(replace(each, other=shown(each.other)) for each in explanation.reserved_for),
        behind=shown(explanation.behind) if explanation.behind is not None else None,
        waits_for=all_shown(explanation.waits_for),
        holders=all_shown(explanation.holders),
        changes=tuple(change_shown(change) for change in explanation.changes),
        next=replace(after, change=change_shown(after.change)) if after is not None else None,
    )
