"""Attempts: how they come to hold devices, change phase, and end."""

from __future__ import annotations

from phalanx.cluster.bits import members
from phalanx.cluster.capacity import Booking
from phalanx.engine.fold.adjust import company_changed, exchange, settle
from phalanx.engine.fold.ending import want_stopped
from phalanx.engine.fold.enqueue import call_dependents, leave, rekey
from phalanx.engine.fold.holding import arrive, backoff_ms, depart, expect_end, may_give_way, stand_anew
from phalanx.engine.fold.kept import go_on, keep_nothing, recall, reopen
from phalanx.engine.fold.patience import calm
from phalanx.engine.recovery.former import forget
from phalanx.engine.recovery.spares import take
from phalanx.engine.state.records import AttemptRecord, Phase, StopReason, usage_of
from phalanx.engine.state.state import State
from phalanx.engine.state.timer import Timer
from phalanx.engine.transaction.suspension import (
    can_suspend,
    is_kept,
    moved_memory,
    own_memory,
)
from phalanx.placement.placement import Placement, in_place
from phalanx.policy.policy import Targets
from phalanx.protocol.action import Action, Repartition, Resize, Resume, Start, Stop, Suspend
from phalanx.protocol.plan import Claim

START_TIMEOUT_MS = 600_000
"""Longer than pulling a large image takes; after it, whether the start will still happen is unknown."""


STOP_MARGIN_MS = 30_000
"""What a backend may take beyond the grace to see that devices are free."""


def open_attempt(state: State, claim: Claim) -> None:
    """Gives a pending job its devices: allocated at once, or claimed if an attempt must leave first."""
    record = state.jobs[claim.job]
    leave(state, record)
    record.attempts = claim.attempt
    bookings = state.bookings(record.asked, claim.placement)
    if record.former is not None:
        take(state, bookings)
    attempt = AttemptRecord(
        record.asked,
        claim.attempt,
        claim.placement,
        bookings,
        claim.waits,
        created_ms=state.now,
        victims=claim.victims,
        next_seq=record.next_seq,
    )
    record.attempt = attempt
    if record.saves:
        state.saving[attempt.key] = attempt
    record.opened = (state.now, state.opened_count)
    state.opened_count += 1
    hold = state.capacity.claim if claim.waits else state.capacity.hold
    for booking in bookings:
        hold(booking)
        arrive(state, attempt, booking)
        if booking.portion is not None and booking.portion.revocable:
            state.revocable[attempt.key] = attempt
    if claim.waits:
        state.waiting_claims[attempt.key] = attempt
    if claim.victims:
        _take_note_of_victims(state, claim)
    state.runs.setdefault(attempt.group, {})[attempt.key] = attempt
    state.use(record.job.queue, usage_of(bookings), 1)
    expect_end(state, attempt)
    if state.policy.targets is not Targets.KEEP:
        state.stand(attempt, state.order(record))


def _take_note_of_victims(state: State, claim: Claim) -> None:
    """A victim of a job of another queue never preempts that job in turn; a stopped job can say for which job."""
    for key in claim.victims:
        victim = state.jobs[key.rpartition("/")[0]]
        if state.quotas and claim.job not in victim.made_way_for:
            victim.made_way_for = (*victim.made_way_for, claim.job)
            state.made_way.clear()
        if victim.attempt is not None and victim.attempt.stop_reason is StopReason.PREEMPTED:
            victim.preempted_for = claim.job


def send(state: State, action: Action) -> None:
    """Books an action that the backend is being asked for."""
    attempt = state.attempt(action.id.job, action.id.attempt)
    if attempt is None and is_kept(state, action.id.job, action.id.attempt):
        attempt = reopen(state, state.jobs[action.id.job])
    assert attempt is not None, f"{action.id}: there is no such attempt"
    attempt.in_flight[action.id.seq] = action
    attempt.next_seq = action.id.seq + 1
    match action:
        case Start():
            _begin(state, attempt)
            state.set_timer(state.now + START_TIMEOUT_MS, "action", *action.id[1:])
        case Stop(grace_ms=grace_ms):
            _begin_stop(state, attempt, StopReason(action.reason))
            state.set_timer(state.now + grace_ms + STOP_MARGIN_MS, "action", *action.id[1:])
        case Suspend(host_mb=memory_mb) if memory_mb:
            _begin_stop(state, attempt, StopReason.PREEMPTED)
            attempt.keeping = own_memory(attempt), moved_memory(attempt, memory_mb)
            state.capacity.claim(attempt.keeping[0])
            state.capacity.hold(attempt.keeping[1])
            state.set_timer(state.now + START_TIMEOUT_MS, "action", *action.id[1:])
        case Suspend():
            attempt.phase = Phase.SUSPENDING
            state.set_timer(state.now + START_TIMEOUT_MS, "action", *action.id[1:])
        case Resume(placement=placement) if placement is not None:
            _begin(state, attempt)
            recall(attempt, state.jobs[attempt.job.id].kept)
            state.set_timer(state.now + START_TIMEOUT_MS, "action", *action.id[1:])
        case Resume():
            attempt.phase = Phase.RESUMING
            state.set_timer(state.now + START_TIMEOUT_MS, "action", *action.id[1:])
        case Resize(placement=placement):
            _begin_resize(state, attempt, placement)
            state.set_timer(state.now + START_TIMEOUT_MS, "action", *action.id[1:])
        case Repartition(node=node, device=device):
            take_over(state, attempt)
            state.preparing[attempt.key] = attempt
            state.cuts[action.id] = action
            state.capacity.set_cutting(state.topology.number[node], device, cutting=True)
            state.set_timer(state.now + START_TIMEOUT_MS, "action", *action.id[1:])


def left_by_ms(state: State, job: str) -> int | None:
    """When all victims of a job have left, if each takes no longer than its grace; None if none was told to stop."""
    attempt = state.jobs[job].attempt
    ceding = dict.fromkeys(attempt.victims if attempt is not None else ())
    return max(
        (
            timer.at_ms - STOP_MARGIN_MS
            for timer in state.timers
            if timer.kind == "action" and f"{timer.job}/{timer.attempt}" in ceding and _is_stop(state, timer)
        ),
        default=None,
    )


def _is_stop(state: State, timer: Timer) -> bool:
    attempt = state.attempt(timer.job, timer.attempt)
    return attempt is not None and isinstance(attempt.in_flight.get(timer.seq), Stop)


def take_over(state: State, attempt: AttemptRecord) -> None:
    """What was claimed is allocated from now on."""
    if attempt.waits:
        for booking in attempt.bookings:
            state.capacity.unclaim(booking)
            state.capacity.hold(booking)
        attempt.waits = False
        del state.waiting_claims[attempt.key]


def _begin(state: State, attempt: AttemptRecord) -> None:
    take_over(state, attempt)
    state.preparing.pop(attempt.key, None)
    attempt.phase = Phase.STARTING
    if state.cells is not None:
        state.cells.proceed(attempt.key)


def _begin_stop(state: State, attempt: AttemptRecord, reason: StopReason) -> None:
    state.to_stop.pop(attempt.key, None)
    company_changed(state, attempt)
    attempt.phase = Phase.STOPPING
    attempt.stop_reason = reason
    if not attempt.ceding:
        attempt.ceding = True
        for booking in attempt.removing:
            # No device changes hands there, but no attempt counts as being there any more.
            state.capacity.versions[booking.node] += 1
        state.leaving[attempt.key] = attempt
        state.standing.remove(attempt)
        state.use(attempt.job.queue, usage_of(attempt.staying), -1)
        for booking in attempt.staying:
            state.capacity.cede(booking)


def _begin_resize(state: State, attempt: AttemptRecord, placement: Placement) -> None:
    """New members get their devices at once; those that go cede theirs until the backend says they are gone."""
    attempt.phase = Phase.RESIZING
    if in_place(attempt.placement, placement):
        exchange(state, attempt, placement)
        return
    bookings = state.bookings(attempt.job, placement)
    attempt.adding = [booking for booking in bookings if booking not in attempt.bookings]
    attempt.removing = [booking for booking in attempt.bookings if booking not in bookings]
    attempt.count_service(state.now)
    for booking in attempt.adding:
        state.capacity.hold(booking)
        arrive(state, attempt, booking)
        attempt.bookings.append(booking)
    for booking in attempt.removing:
        state.capacity.cede(booking)
    state.use(attempt.job.queue, usage_of(attempt.adding), 1)
    state.use(attempt.job.queue, usage_of(attempt.removing), -1)
    stand_anew(state, attempt)


def resized(state: State, attempt: AttemptRecord, placement: Placement) -> None:
    """The backend says the attempt has its new size."""
    attempt.count_service(state.now)
    for booking in attempt.removing:
        _give_up(state, attempt, booking, ceded=True)
    attempt.removing = attempt.adding = ()
    attempt.placement = placement
    attempt.phase = Phase.RUNNING
    attempt.resize_failures = 0
    if not attempt.is_revocable:
        state.revocable.pop(attempt.key, None)
    settle(state, attempt.job.id)
    company_changed(state, attempt)
    stand_anew(state, attempt)


def resize_failed(state: State, attempt: AttemptRecord) -> None:
    """A failed growth is given back and tried again later. What a failed shrink was to free is freed by a stop."""
    if attempt.removing:
        want_stopped(state, attempt, StopReason.PREEMPTED)
        return
    if not attempt.adding:
        exchange(state, attempt, attempt.placement)
    attempt.count_service(state.now)
    for booking in attempt.adding:
        _give_up(state, attempt, booking, ceded=False)
        if state.cells is not None:
            state.cells.give_back(attempt.key, state.topology.nodes[booking.node].name, members(booking.devices))
    attempt.adding = ()
    attempt.phase = Phase.RUNNING
    stand_anew(state, attempt)
    _change_later(state, attempt)


def _change_later(state: State, attempt: AttemptRecord) -> None:
    attempt.resize_failures += 1
    attempt.grow_after_ms = state.now + backoff_ms(attempt.resize_failures)
    state.set_timer(attempt.grow_after_ms, "wake", attempt.job.id, attempt.number)


def change_phase(state: State, attempt: AttemptRecord, phase: Phase) -> None:
    """The backend says the attempt is suspended, or goes on."""
    attempt.phase = phase
    attempt.resize_failures = 0
    settle(state, attempt.job.id)
    company_changed(state, attempt)


def phase_failed(state: State, attempt: AttemptRecord, phase: Phase) -> None:
    """It could not be suspended, or not go on: it is what it was, and is asked again later."""
    attempt.phase = phase
    _change_later(state, attempt)


def _give_up(state: State, attempt: AttemptRecord, booking: Booking, ceded: bool) -> None:
    if ceded:
        state.capacity.keep(booking)
    state.capacity.release(booking)
    attempt.bookings.remove(booking)
    if not ceded:
        state.use(attempt.job.queue, usage_of((booking,)), -1)
    depart(state, attempt, booking)
    if any(other.node == booking.node for other in attempt.bookings):
        state.on_node[booking.node][attempt.key] = attempt


def started(state: State, attempt: AttemptRecord) -> None:
    """The backend says every task runs."""
    if attempt.phase is not Phase.STARTING:
        return
    attempt.phase = Phase.RUNNING
    attempt.started_ms = attempt.durable_ms = attempt.counted_ms = state.now
    record = state.jobs[attempt.job.id]
    is_resumed = record.kept is not None
    if record.kept is not None:
        go_on(state, record, attempt, record.kept)
    calm(state, record)
    record.overdue = False
    forget(state, record)
    rekey(state, record)
    expect_end(state, attempt)
    record.start_failures = 0
    attempt.suspendable = can_suspend(state, attempt)
    company_changed(state, attempt)
    if record.first_start_ms is None:
        record.first_start_ms = state.now
        call_dependents(state, record.job.id)
    if attempt.job.gang.elastic and "resize" not in state.lacks:
        state.elastic[attempt.key] = attempt
        may_give_way(state, attempt)
    elif is_resumed or state.policy.has_moves or (state.quotas and state.quotas.borrows(record.job.queue)):
        # An attempt that started in a decision could not be moved or reclaimed in it for a job behind it. One that was
        # resumed after a suspension was left alone until now.
        may_give_way(state, attempt)
    if state.quotas.accounts:
        time_least_run(state, attempt)
    if attempt.job.max_run_ms is not None:
        left_ms = max(attempt.job.max_run_ms - attempt.ran_before_ms, 0)
        state.set_timer(state.now + left_ms, "max_run", attempt.job.id, attempt.number)


def time_least_run(state: State, attempt: AttemptRecord) -> None:
    """Has it be looked at once it has run for as long as its queue lets it run: it may be preempted from then on."""
    for least_ms in state.quotas.least_runs_ms(attempt.job.queue):
        if attempt.started_ms + least_ms >= state.now:
            state.set_timer(attempt.started_ms + least_ms, "min_run", attempt.job.id, attempt.number)


def suspend_failed(state: State, attempt: AttemptRecord) -> None:
    """It runs on, and its devices are claimed: it is stopped instead, unless that is asked for already."""
    keep_nothing(state, attempt)
    if not any(isinstance(action, Stop) for action in attempt.in_flight.values()):
        state.to_stop.setdefault(attempt.key, StopReason.PREEMPTED)


def cut_answered(state: State, cut: Repartition) -> None:
    """The backend has said how a repartition came out: the device is usable again, unless another is under way."""
    if not any((other.node, other.device) == (cut.node, cut.device) for other in state.cuts.values()):
        state.capacity.set_cutting(state.topology.number[cut.node], cut.device, cutting=False)
