"""A victim of this plan runs on after all, where the jobs with claims on its devices can have other devices."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.engine.plan.builder import PlanBuilder
from phalanx.engine.preempt.preemption import PreemptionPlan, plan_beside_terminating
from phalanx.engine.preempt.stops import may_stop
from phalanx.engine.state.records import AttemptRecord, JobRecord, Phase, StopReason, usage_of
from phalanx.engine.state.yielding import yields
from phalanx.protocol.action import Action, Stop
from phalanx.protocol.plan import Claim


def unpreempt(builder: PlanBuilder, victim: AttemptRecord) -> None:
    """Lets a victim of this plan run on where the jobs with claims on its devices can have other devices.

    Those are left by attempts that leave already, or by attempts behind the victim that leave in its place. Stopped,
    the victim would go before these as soon as it was pending again; where there are quotas, only in its own queue.
    """
    instead = _instead_of(builder, victim)
    if instead is None:
        return
    mark = builder.transaction.mark()
    actions, leaving, gpus = list(builder.actions), dict(builder.leaving), (builder.leaving_gpus, builder.promised_gpus)
    for attempt in instead:
        builder.stop(attempt, StopReason.PREEMPTED)
        builder.stopped[attempt.key] = attempt
    if not _let_run_on(builder, victim, instead):
        builder.transaction.undo_to(mark)
        builder.actions, (builder.leaving_gpus, builder.promised_gpus) = actions, gpus
        _let_leave(builder, leaving)
        for attempt in instead:
            del builder.stopped[attempt.key], builder.touched[attempt.key]


def _instead_of(builder: PlanBuilder, victim: AttemptRecord) -> list[AttemptRecord] | None:
    """Attempts behind a victim that would have to leave in its place, last first, none needlessly; None if too few."""
    lacking = victim.gpus - builder.free_soon
    if lacking <= 0:
        return []
    key = victim.standing or ()
    if builder.state.gpus_behind(key) < lacking:
        return None
    chosen: list[AttemptRecord] = []
    untouchable, heads = builder.untouchable, _heads_over(builder, victim)
    for attempt in builder.state.behind(key):
        if lacking <= 0:
            break
        if (
            attempt.key not in untouchable
            and may_stop(attempt)
            and attempt.phase is not Phase.CLAIMED
            and (not builder.state.quotas or attempt.job.queue == victim.job.queue)
            and all(yields(builder.state, head, attempt) for head in heads)
        ):
            chosen.append(attempt)
            lacking -= attempt.gpus
    for attempt in chosen[::-1]:
        if lacking + attempt.gpus <= 0:
            chosen.remove(attempt)
            lacking += attempt.gpus
    return chosen if lacking <= 0 else None


def _heads_over(builder: PlanBuilder, victim: AttemptRecord) -> list[JobRecord]:
    """The jobs for which a victim was stopped, where there are queues: those in its place must yield to them."""
    if not builder.state.quotas:
        return []
    return [builder.state.jobs[claim.job] for claim in builder.claims if victim.key in claim.victims]


def _let_run_on(builder: PlanBuilder, victim: AttemptRecord, instead: Sequence[AttemptRecord]) -> bool:
    """Moves the claims on a victim's devices to those of other attempts that leave; whether all find a place there."""
    mark = builder.transaction.mark()
    promised = [i for i, claim in enumerate(builder.claims) if claim.waits and _lies_on(builder, claim, victim)]
    for i in promised:
        bookings = builder.bookings_of(builder.claims[i])
        builder.transaction.unclaim(bookings)
        builder.transaction.use(builder.queue_of(builder.claims[i]), usage_of(bookings), -1)
    if not _stays(builder, victim):
        builder.transaction.undo_to(mark)
        return False
    others = {key: attempt for key, attempt in builder.leaving.items() if key != victim.key}
    moved: dict[int, tuple[Claim, PreemptionPlan]] = {}
    had = {i: builder.bookings_of(builder.claims[i]) for i in promised}
    promised_gpus = builder.promised_gpus
    for i in promised:
        claim = builder.claims[i]
        room = plan_beside_terminating(builder.transaction, builder.state.jobs[claim.job], others)
        if room is None:
            builder.transaction.undo_to(mark)
            builder.promised_gpus = promised_gpus
            return False
        builder.promised_gpus -= builder.held_gpus(builder.bookings_of(claim))
        waits = not builder.transaction.hold(room.bookings)
        if waits:
            builder.promised_gpus += builder.held_gpus(room.bookings)
            builder.transaction.claim(room.bookings)
        builder.transaction.use(builder.queue_of(claim), usage_of(room.bookings), 1)
        victims = tuple(key for key in claim.victims if key != victim.key)
        if builder.state.quotas and victim.key in claim.victims:
            victims += tuple(attempt.key for attempt in instead)
        moved[i] = Claim(claim.job, claim.attempt, room.placement, waits, victims), room
    builder.borrows.forget({claim.job: None for claim, _ in moved.values()})
    builder.claims = [moved[i][0] if i in moved else claim for i, claim in enumerate(builder.claims)]
    builder.actions = [action for action in builder.actions if not _stops(action, victim)]
    for i, (claim, room) in moved.items():
        release = builder.transaction.unclaim if claim.waits else builder.transaction.release
        builder.reservations.moved(had[i], list(room.bookings), release)
        if not claim.waits:
            builder.begin(claim.job, claim.attempt, builder.next_seq(claim), claim.placement, room.bookings)
    _let_leave(builder, others)
    builder.leaving_gpus -= victim.gpus
    del builder.stopped[victim.key], builder.touched[victim.key]
    return True


def _let_leave(builder: PlanBuilder, leaving: dict[str, AttemptRecord]) -> None:
    """Has these attempts leave and no more, for all readers of `builder.leaving`."""
    builder.leaving.clear()
    builder.leaving.update(leaving)


def _stays(builder: PlanBuilder, victim: AttemptRecord) -> bool:
    """As if a victim stayed after all; not if its queue may not have what it holds any more."""
    queue, held = victim.job.queue, usage_of(victim.staying)
    if builder.state.quotas and builder.state.quotas.shortfall(queue, held) is not None:
        return False
    builder.transaction.keep(victim.staying)
    builder.transaction.use(queue, held, 1)
    return True


def _lies_on(builder: PlanBuilder, claim: Claim, victim: AttemptRecord) -> bool:
    """Whether a claim needs anything that a victim holds."""
    nodes = [booking.node for booking in victim.bookings]
    return any(booking.node in nodes for booking in builder.bookings_of(claim))


def _stops(action: Action, attempt: AttemptRecord) -> bool:
    return isinstance(action, Stop) and action.id.job == attempt.job.id and action.id.attempt == attempt.number
