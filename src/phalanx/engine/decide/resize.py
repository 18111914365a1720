"""Elastic attempts lose members, give up what they may not have, and take up what is free."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from phalanx.engine.plan.builder import PlanBuilder
from phalanx.engine.state.elastic import does_without, lost, missing, most, surplus
from phalanx.engine.state.records import AttemptRecord, need_of, usage_of
from phalanx.placement.place import slots_of
from phalanx.workload.gang import Role
from phalanx.workload.job import Kind


def shed_lost_members(builder: PlanBuilder) -> None:
    """Has services go on without the members that were on failed hardware."""
    for attempt in builder.state.elastic.values():
        if attempt.job.kind is Kind.SERVICE and attempt.key not in builder.touched:
            going = lost(attempt, builder.state.capacity)
            if going and does_without(attempt, going):
                builder.shrink(attempt, tuple(going))


def shrink_to_sizes(builder: PlanBuilder) -> None:
    """Takes from elastic attempts what they have beyond what they may, or the policy wants them to have."""
    sets_sizes = builder.state.policy.sets_sizes
    for attempt in builder.state.elastic.values():
        if attempt.key not in builder.touched:
            going = surplus(attempt, builder.state.jobs[attempt.job.id].sizes if sets_sizes else most(attempt.job))
            if going:
                builder.shrink(attempt, tuple(going))


def grow_elastic(builder: PlanBuilder) -> None:
    """Elastic attempts take up what is free, the earliest submitted first, up to the sizes that the policy sets.

    Not what is reserved: it is unknown whether they would give it back in time.
    """
    blocks = builder.reservations.block()
    for attempt in sorted(builder.state.elastic.values(), key=lambda attempt: attempt.created_ms):
        if attempt.key in builder.touched or attempt.grow_after_ms > builder.now:
            continue
        sizes = builder.state.jobs[attempt.job.id].sizes if builder.state.policy.sets_sizes else None
        _grow_by(builder, attempt, missing(attempt, None if attempt.job.scale is not None else sizes))
    blocks.lift()


def grow_on_free(builder: PlanBuilder, attempt: AttemptRecord, role: Role, more: int) -> int:
    """Gives a service up to so many more replicas of what is free, and not reserved for jobs that go before it; how
    many it has got.
    """
    blocks = builder.reservations.block(attempt.job.priority)
    got = _grow_by(builder, attempt, [(role, more)])
    blocks.lift()
    return got


def _grow_by(builder: PlanBuilder, attempt: AttemptRecord, more_of: Iterable[tuple[Role, int]]) -> int:
    slots = attempt.placement.slots
    for role, more in more_of:
        # Whole devices come of what is free; parts of them may also lie on devices that are shared already.
        if role.task.share is None and role.task.gpus > builder.state.capacity.free_total:
            continue
        seats = builder.transaction.grow(attempt, role, _within_quota(builder, attempt, role, more))
        builder.transaction.use(attempt.job.queue, usage_of([seat.booking for seat in seats]), 1)
        slots += slots_of(builder.state.topology, seats, 1 + max(slot.rank for slot in slots))
    if len(slots) > len(attempt.placement.slots):
        builder.resize(attempt, slots)
    return len(slots) - len(attempt.placement.slots)


def _within_quota(builder: PlanBuilder, attempt: AttemptRecord, role: Role, more: int) -> int:
    """As many more members as the queue may have."""
    quotas, queue = builder.state.quotas, attempt.job.queue
    while quotas and more and quotas.shortfall(queue, need_of((replace(role, replicas_min=more),))):
        more -= 1
    return more
