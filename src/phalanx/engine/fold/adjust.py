"""Adjustments: shares of devices that are changed where they are, while their jobs run on.

What is counted stays the same. A job changes the jobs with which it shares its turn, the compute that a revocable share
may have, or the memory that it borrows from other jobs. So a change needs no free capacity, can always be undone, and
is a `Resize` that adds and removes no member.
"""

from __future__ import annotations

from dataclasses import replace

from phalanx.cluster.device import Mode, Portion
from phalanx.engine.state.records import AttemptRecord, Phase, usage_of
from phalanx.engine.state.state import State
from phalanx.placement.placement import Placement, Slot
from phalanx.policy.view import Adjustment
from phalanx.protocol.action import Action, ActionId, Resize, Resume, Suspend
from phalanx.protocol.event import Event, Progress


def step_towards(state: State, attempt: AttemptRecord, wanted: Adjustment) -> Action | None:
    """The next action for an attempt to have what is wanted; None if it has it, or nothing can be done for now."""
    action = ActionId(state.term, attempt.job.id, attempt.number, attempt.next_seq)
    rests = wanted.compute_permille == 0 and attempt.is_revocable
    if attempt.phase is Phase.SUSPENDED and not rests:
        return Resume(action)
    if attempt.phase is not Phase.RUNNING:
        return None
    if rests and ("resize" in state.lacks or _is_lent(attempt, wanted)):
        return Suspend(action) if "suspend" not in state.lacks else None
    if _has(attempt, wanted) or "resize" in state.lacks:
        return None
    return Resize(action, adjusted(attempt.placement, wanted))


def adjusted(placement: Placement, wanted: Adjustment) -> Placement:
    """A placement with the shares that are wanted."""
    portions = dict.fromkeys(slot.portion for slot in placement.slots if slot.portion is not None)
    changed = {portion: _adjusted(portion, wanted) for portion in portions}
    slots = (slot if slot.portion is None else _with(slot, changed[slot.portion]) for slot in placement.slots)
    return Placement(tuple(slots), placement.mesh)


def _with(slot: Slot, portion: Portion) -> Slot:
    return Slot(slot.rank, slot.role, slot.node, slot.devices, portion)


def _adjusted(portion: Portion, wanted: Adjustment) -> Portion:
    if wanted.beside is not None and portion.mode is Mode.TURNS:
        portion = replace(portion, beside=wanted.beside)
    if wanted.compute_permille and portion.revocable:
        portion = replace(portion, compute_permille=wanted.compute_permille)
    if wanted.lent_mb is not None and portion.revocable:
        portion = replace(portion, lent_mb=wanted.lent_mb)
    return portion


def exchange(state: State, attempt: AttemptRecord, placement: Placement) -> None:
    """Has an attempt hold the shares of another placement in place of those it has."""
    portions = {f"{attempt.job.id}#{slot.rank}": slot.portion for slot in placement.slots}
    bookings = [booking._replace(portion=portions[booking.holder]) for booking in attempt.bookings]
    grown = state.capacity.grown
    state.use(attempt.job.queue, usage_of(attempt.bookings), -1)
    for had, has in zip(attempt.bookings, bookings, strict=True):
        if had != has:
            state.capacity.release(had)
            state.capacity.hold(has)
    state.use(attempt.job.queue, usage_of(bookings), 1)
    # It frees no capacity for another job: pending jobs need not be tried again.
    state.capacity.grown = grown
    attempt.bookings = bookings


def company_changed(state: State, attempt: AttemptRecord) -> None:
    """Takes note that an attempt has begun or ceased to run, or runs in another way.

    The policy is asked about all jobs on its devices. One of them may move now, where something is free.
    """
    moves = state.policy.has_relocations and state.capacity.free_total > 0
    if not moves and not state.policy.has_adjustments:
        return
    jobs = company(state, attempt.job.id)
    if state.policy.has_adjustments:
        state.reviews.update(jobs)
    if moves and len(jobs) > 1:
        for booking in attempt.bookings:
            state.capacity.grown |= state.topology.bit[booking.node]


def review(state: State, event: Event) -> None:
    """Asks the policy about jobs that have reported, or whose co-located jobs have changed."""
    if isinstance(event, Progress) and state.attempt(event.job, event.attempt) is not None:
        state.reviews[event.job] = None
    reviews, state.reviews = state.reviews, {}
    for job in reviews:
        attempt = state.jobs[job].attempt
        if attempt is None or not _shares(attempt) or attempt.phase not in RUNS:
            continue
        for name, wanted in state.policy.adjusts(state.memory, state.jobs[job], state).items():
            state.adjustments[name] = wanted
            settle(state, name)


def settle(state: State, job: str) -> None:
    """Forgets an adjustment that has come about, or of a job that is not there any more."""
    wanted = state.adjustments.get(job)
    record = state.jobs.get(job)
    if wanted is None or record is None or record.attempt is None or _has(record.attempt, wanted):
        state.adjustments.pop(job, None)


def _has(attempt: AttemptRecord, wanted: Adjustment) -> bool:
    if wanted.compute_permille == 0 and attempt.is_revocable:
        return attempt.phase is Phase.SUSPENDED
    return attempt.phase is Phase.RUNNING and all(
        slot.portion is None or _is_as_wanted(slot.portion, wanted) for slot in attempt.placement.slots
    )


def _is_lent(attempt: AttemptRecord, wanted: Adjustment) -> bool:
    """Whether it has such memory as is wanted: a suspended attempt could give none back."""
    portions = (slot.portion for slot in attempt.placement.slots if slot.portion is not None)
    return all(wanted.lent_mb in (None, portion.lent_mb) for portion in portions if portion.revocable)


def _is_as_wanted(portion: Portion, wanted: Adjustment) -> bool:
    beside = portion.mode is not Mode.TURNS or wanted.beside in (None, portion.beside)
    if not portion.revocable:
        return beside
    compute = wanted.compute_permille in (None, 0, portion.compute_permille)
    return beside and compute and wanted.lent_mb in (None, portion.lent_mb)


RUNS = (Phase.RUNNING, Phase.RESIZING, Phase.SUSPENDING, Phase.SUSPENDED, Phase.RESUMING)
"""Phases in which an attempt has been started and is not to be stopped."""


def _shares(attempt: AttemptRecord) -> bool:
    return any(booking.portion is not None for booking in attempt.bookings)


def company(state: State, job: str) -> dict[str, None]:
    """The jobs that hold parts of the devices that a job has a share of, itself first."""
    found: dict[str, None] = {job: None}
    attempt = state.jobs[job].attempt
    for booking in attempt.bookings if attempt is not None else ():
        if booking.portion is not None:
            holders = state.capacity.load(booking.node, booking.devices.bit_length() - 1).holders
            found.update((holder.rpartition("#")[0], None) for holder in holders)
    return found
