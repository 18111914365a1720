"""A victim of this plan runs on after all, where the jobs that are promised its devices can have others."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.engine.plan.draft import Draft
from phalanx.engine.preempt.room import Room, room_beside
from phalanx.engine.preempt.stops import may_stop
from phalanx.engine.state.records import AttemptRecord, JobRecord, Phase, StopReason, usage_of
from phalanx.protocol.action import Action, Stop
from phalanx.protocol.plan import Claim


def spare(draft: Draft, victim: AttemptRecord) -> None:
    """Lets a victim of this plan run on where those who are promised its devices can have others.

    Those are left by who leaves already, or by who stands behind the victim and leaves in its place: stopped, it
    would go before them as soon as it stood in line again.
    """
    instead = _instead_of(draft, victim)
    if instead is None:
        return
    mark = draft.trial.mark()
    actions, leaving, gpus = list(draft.actions), dict(draft.leaving), (draft.leaving_gpus, draft.promised_gpus)
    for attempt in instead:
        draft.stop(attempt, StopReason.PREEMPTED)
        draft.stopped[attempt.key] = attempt
    if not _let_run_on(draft, victim, instead):
        draft.trial.undo_to(mark)
        draft.actions, (draft.leaving_gpus, draft.promised_gpus) = actions, gpus
        _let_leave(draft, leaving)
        for attempt in instead:
            del draft.stopped[attempt.key], draft.touched[attempt.key]


def _instead_of(draft: Draft, victim: AttemptRecord) -> list[AttemptRecord] | None:
    """Who behind a victim would have to leave for it to stay, the last first, none needlessly; None if too few."""
    lacking = victim.gpus - draft.free_soon
    if lacking <= 0:
        return []
    key = victim.standing or ()
    if draft.state.gpus_behind(key) < lacking:
        return None
    chosen: list[AttemptRecord] = []
    untouchable, heads = draft.untouchable, _heads_over(draft, victim)
    for attempt in draft.state.behind(key):
        if lacking <= 0:
            break
        if (
            may_stop(attempt)
            and attempt.phase is not Phase.CLAIMED
            and attempt.key not in untouchable
            and all(draft.state.yields(head, attempt) for head in heads)
        ):
            chosen.append(attempt)
            lacking -= attempt.gpus
    for attempt in chosen[::-1]:
        if lacking + attempt.gpus <= 0:
            chosen.remove(attempt)
            lacking += attempt.gpus
    return chosen if lacking <= 0 else None


def _heads_over(draft: Draft, victim: AttemptRecord) -> list[JobRecord]:
    """For whom a victim was stopped, where there are queues: whoever leaves in its place must give way to them."""
    if not draft.state.quotas:
        return []
    return [draft.state.jobs[claim.job] for claim in draft.claims if victim.key in claim.victims]


def _let_run_on(draft: Draft, victim: AttemptRecord, instead: Sequence[AttemptRecord]) -> bool:
    """Moves the claims that lie on a victim's devices to those of others who leave; whether all find room there."""
    mark = draft.trial.mark()
    promised = [i for i, claim in enumerate(draft.claims) if claim.waits and _lies_on(draft, claim, victim)]
    for i in promised:
        bookings = draft.bookings_of(draft.claims[i])
        draft.trial.unclaim(bookings)
        draft.trial.use(draft.queue_of(draft.claims[i]), usage_of(bookings), -1)
    if not _stays(draft, victim):
        draft.trial.undo_to(mark)
        return False
    others = {key: attempt for key, attempt in draft.leaving.items() if key != victim.key}
    moved: dict[int, tuple[Claim, Room]] = {}
    had = {i: draft.bookings_of(draft.claims[i]) for i in promised}
    promised_gpus = draft.promised_gpus
    for i in promised:
        claim = draft.claims[i]
        room = room_beside(draft.trial, draft.state.jobs[claim.job], others)
        if room is None:
            draft.trial.undo_to(mark)
            draft.promised_gpus = promised_gpus
            return False
        draft.promised_gpus -= draft.held_gpus(draft.bookings_of(claim))
        waits = not draft.trial.hold(room.bookings)
        if waits:
            draft.promised_gpus += draft.held_gpus(room.bookings)
            draft.trial.claim(room.bookings)
        draft.trial.use(draft.queue_of(claim), usage_of(room.bookings), 1)
        victims = tuple(key for key in claim.victims if key != victim.key)
        if draft.state.quotas and victim.key in claim.victims:
            victims += tuple(attempt.key for attempt in instead)
        moved[i] = Claim(claim.job, claim.attempt, room.placement, waits, victims), room
    draft.loans.forget({claim.job: None for claim, _ in moved.values()})
    draft.claims = [moved[i][0] if i in moved else claim for i, claim in enumerate(draft.claims)]
    draft.actions = [action for action in draft.actions if not _stops(action, victim)]
    for i, (claim, room) in moved.items():
        release = draft.trial.unclaim if claim.waits else draft.trial.release
        draft.reservations.moved(had[i], list(room.bookings), release)
        if not claim.waits:
            draft.begin(claim.job, claim.attempt, draft.next_seq(claim), claim.placement, room.bookings)
    _let_leave(draft, others)
    draft.leaving_gpus -= victim.gpus
    del draft.stopped[victim.key], draft.touched[victim.key]
    return True


def _let_leave(draft: Draft, leaving: dict[str, AttemptRecord]) -> None:
    """Has these leave and no others, for all who look at who leaves."""
    draft.leaving.clear()
    draft.leaving.update(leaving)


def _stays(draft: Draft, victim: AttemptRecord) -> bool:
    """As if a victim stayed after all; not if its queue may not have what it holds any more."""
    queue, held = victim.job.queue, usage_of(victim.staying)
    if draft.state.quotas and draft.state.quotas.shortfall(queue, held) is not None:
        return False
    draft.trial.keep(victim.staying)
    draft.trial.use(queue, held, 1)
    return True


def _lies_on(draft: Draft, claim: Claim, victim: AttemptRecord) -> bool:
    """Whether a claim needs anything that a victim holds."""
    nodes = [booking.node for booking in victim.bookings]
    return any(booking.node in nodes for booking in draft.bookings_of(claim))


def _stops(action: Action, attempt: AttemptRecord) -> bool:
    return isinstance(action, Stop) and action.id.job == attempt.job.id and action.id.attempt == attempt.number
