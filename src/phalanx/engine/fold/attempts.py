"""Attempts: how they come to hold devices, change phase, and end."""

from __future__ import annotations

from phalanx.cluster.bits import members
from phalanx.cluster.capacity import Booking
from phalanx.cluster.cluster import Health
from phalanx.engine.fold.adjust import company_changed, exchange, settle
from phalanx.engine.fold.patience import calm
from phalanx.engine.fold.request import take_request
from phalanx.engine.fold.waiting import call_array, call_dependents, give_up_array_seat, leave, line_up, rekey
from phalanx.engine.state.records import AttemptRecord, JobRecord, JobState, Kept, Phase, StopReason, usage_of
from phalanx.engine.state.state import State, Timer
from phalanx.engine.transaction.suspension import (
    attempt_of,
    can_suspend,
    is_kept,
    kept_of,
    moved_memory,
    own_memory,
    request_of,
    together,
)
from phalanx.placement.placement import Placement, in_place
from phalanx.policy.policy import Targets, nobody
from phalanx.protocol.action import Action, Repartition, Resize, Resume, Start, Stop, Suspend
from phalanx.protocol.event import Outcome
from phalanx.protocol.plan import Claim

START_TIMEOUT_MS = 600_000
"""Longer than pulling a large image takes; after it nobody knows whether the start will still happen."""

STOP_MARGIN_MS = 30_000
"""What a backend may take beyond the grace to see that devices are free."""

SURPRISE_MS = 1_000
"""An end that is earlier or later than expected by more than this makes reservations be worked out anew."""

BACKOFF_FIRST_MS, BACKOFF_MAX_MS = 1_000, 300_000


def backoff_ms(failures: int) -> int:
    """How long to wait after the n-th failure in a row: doubling, bounded."""
    return int(min(BACKOFF_FIRST_MS << min(failures - 1, 20), BACKOFF_MAX_MS))


def open_attempt(state: State, claim: Claim) -> None:
    """Gives a waiting job its devices: held at once, or promised if somebody must leave first."""
    record = state.jobs[claim.job]
    leave(state, record)
    record.attempts = claim.attempt
    bookings = state.bookings(record.asked, claim.placement)
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
    take = state.capacity.claim if claim.waits else state.capacity.hold
    for booking in bookings:
        take(booking)
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
        state.standing.add(attempt, state.order(record))


def _take_note_of_victims(state: State, claim: Claim) -> None:
    """Who makes way for a job of another queue never has that make way in turn; who is stopped can say for whom."""
    for key in claim.victims:
        victim = state.jobs[key.rpartition("/")[0]]
        if state.quotas and claim.job not in victim.made_way_for:
            victim.made_way_for = (*victim.made_way_for, claim.job)
        if victim.attempt is not None and victim.attempt.stop_reason is StopReason.PREEMPTED:
            victim.preempted_for = claim.job


def expect_end(state: State, attempt: AttemptRecord) -> None:
    """Works out when an attempt will have left, for those who reserve what it holds."""
    if state.reserves:
        record = state.jobs[attempt.job.id]
        left_ms = max(record.estimate_ms - record.executed_before_ms, 0)
        since_ms = attempt.started_ms if attempt.started_ms >= 0 else attempt.created_ms
        state.ends.expect(attempt, since_ms + left_ms)


def limit_waits(state: State) -> None:
    """From now on devices may be reserved for who waits too long: takes note of when everybody will have left."""
    known = state.reserves
    state.waits_are_limited = True
    if not known:
        know_lengths(state)


def know_lengths(state: State) -> None:
    """Takes note of how long everybody runs, where that has come to matter."""
    for attempt in state.attempts():
        expect_end(state, attempt)
    for kind in state.classes.values():
        kind.lengths_ms = sorted(state.jobs[job].estimate_ms for _, job in kind.jobs)


def _forget_end(state: State, attempt: AttemptRecord) -> None:
    """An end that comes at another time than was expected changes what can be reserved."""
    expected_ms = state.ends.forget(attempt)
    if expected_ms is not None and abs(expected_ms - state.now) > SURPRISE_MS:
        state.surprised = True


def arrive(state: State, attempt: AttemptRecord, booking: Booking) -> None:
    """Takes note of who is on a node."""
    state.on_node.setdefault(booking.node, {})[attempt.key] = attempt
    state.stoppable.add(attempt, booking, 1)


def depart(state: State, attempt: AttemptRecord, booking: Booking) -> None:
    """Undoes `arrive`."""
    state.on_node[booking.node].pop(attempt.key, None)
    state.stoppable.add(attempt, booking, -1)


def send(state: State, action: Action) -> None:
    """Books an action that the backend is being asked for."""
    attempt = state.attempt(action.id.job, action.id.attempt)
    if attempt is None and is_kept(state, action.id.job, action.id.attempt):
        attempt = _reopen(state, state.jobs[action.id.job])
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
            _recall(attempt, state.jobs[attempt.job.id].kept)
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
    """When all have left who were told to for a job, if each takes no longer than its grace; None if none was told."""
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
    """What was promised is held from now on."""
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
            # Nothing changes hands there, but nobody counts as being there any more.
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
    _stand_anew(state, attempt)


def _stand_anew(state: State, attempt: AttemptRecord) -> None:
    """With its size an attempt's place in the order may change, and when that changes next."""
    state.standing.recount(attempt)
    rekey(state, state.jobs[attempt.job.id])
    may_give_way(state, attempt)


def may_give_way(state: State, attempt: AttemptRecord) -> None:
    """Who was not to be touched before may give way from now on: others may find more than before."""
    if state.makes_room and attempt.phase is Phase.RUNNING:
        for booking in attempt.bookings:
            state.capacity.grown |= state.topology.bit[booking.node]


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
    _stand_anew(state, attempt)


def resize_failed(state: State, attempt: AttemptRecord) -> None:
    """A failed growth is given back and tried again later. What a failed shrink promised to others is had by a stop."""
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
    _stand_anew(state, attempt)
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
        _go_on(state, record, attempt, record.kept)
    calm(state, record)
    record.overdue = False
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
    elif is_resumed or state.policy.moves is not nobody or (state.quotas and state.quotas.borrows(record.job.queue)):
        # Who started in a decision could not be moved, or had back, in it by those who stood behind. Who goes on after
        # a suspension was left alone until now.
        may_give_way(state, attempt)
    if state.quotas.accounts:
        time_least_run(state, attempt)
    if attempt.job.max_run_ms is not None:
        left_ms = max(attempt.job.max_run_ms - attempt.ran_before_ms, 0)
        state.set_timer(state.now + left_ms, "max_run", attempt.job.id, attempt.number)


def time_least_run(state: State, attempt: AttemptRecord) -> None:
    """Has it be looked at once it has run for as long as its queue lets it run: it may give way from then on."""
    for least_ms in state.quotas.least_runs_ms(attempt.job.queue):
        if attempt.started_ms + least_ms >= state.now:
            state.set_timer(attempt.started_ms + least_ms, "min_run", attempt.job.id, attempt.number)


def want_stopped(state: State, attempt: AttemptRecord, reason: StopReason) -> None:
    """Has the next plan stop an attempt; one that only has a claim ends at once."""
    if attempt.phase is Phase.CLAIMED:
        attempt.stop_reason = reason
        end(state, attempt)
    elif attempt.phase is not Phase.STOPPING or (attempt.keeping is not None and reason is StopReason.CANCELLED):
        # Moving its memory to the host may take minutes: who cancels does not wait for that.
        state.to_stop.setdefault(attempt.key, reason)


def suspended(state: State, attempt: AttemptRecord) -> None:
    """The backend says that the attempt has left its devices: its job waits for some of that node."""
    assert attempt.keeping is not None, f"{attempt.key} keeps nothing"
    booking, record = together(*attempt.keeping), state.jobs[attempt.job.id]
    kept = kept_of(attempt, booking, state.now)
    _close(state, attempt)
    state.capacity.hold(booking)
    record.kept = kept
    state.kept[record.job.id] = None
    take_request(record, request_of(state, record), state.tells_apart)
    _after_stop(state, record, attempt)
    if record.attempt is None and state.capacity.health[booking.node] is not Health.HEALTHY:
        discard(state, record, StopReason.HARDWARE)


def suspend_failed(state: State, attempt: AttemptRecord) -> None:
    """It runs on, and its devices are promised: it is stopped instead, unless that is asked for already."""
    _keep_nothing(state, attempt)
    if not any(isinstance(action, Stop) for action in attempt.in_flight.values()):
        state.to_stop.setdefault(attempt.key, StopReason.PREEMPTED)


def _keep_nothing(state: State, attempt: AttemptRecord) -> None:
    if attempt.keeping is not None:
        own, moved = attempt.keeping
        state.capacity.unclaim(own)
        state.capacity.release(moved)
        attempt.keeping = None


def _recall(attempt: AttemptRecord, kept: Kept | None) -> None:
    """Has an attempt that goes on know what it has done: that is lost if it is stopped before it has its devices."""
    assert kept is not None, f"nothing is kept of {attempt.key}"
    attempt.device_memory_mb, attempt.unsaved_sizes = kept.device_memory_mb, kept.unsaved_sizes
    attempt.durable_ms, attempt.ran_before_ms = kept.durable_ms, kept.ran_ms


def _go_on(state: State, record: JobRecord, attempt: AttemptRecord, kept: Kept) -> None:
    """A suspended attempt runs again: what was kept for it is given back, but for the memory that it asked for."""
    _recall(attempt, kept)
    state.use(record.job.queue, usage_of(attempt.bookings), -1)
    for booking in attempt.bookings:
        state.capacity.release(booking)
    _forget_kept(state, record)
    attempt.job = record.asked
    attempt.bookings = state.bookings(record.asked, attempt.placement)
    for booking in attempt.bookings:
        state.capacity.hold(booking)
    state.use(record.job.queue, usage_of(attempt.bookings), 1)


def _forget_kept(state: State, record: JobRecord) -> None:
    """Nothing is kept for a job any more: it asks for what it was submitted with."""
    if record.kept is not None:
        state.capacity.release(record.kept.booking)
        record.kept = None
        del state.kept[record.job.id]
        leave(state, record)
        take_request(record, request_of(state, record), state.tells_apart)


def kept_ended(state: State, record: JobRecord, outcome: Outcome, reason: str) -> None:
    """A suspended attempt has ended, as when its processes were killed."""
    ended_by_itself(state, _reopen(state, record), outcome, reason)


def discard(state: State, record: JobRecord, reason: StopReason) -> None:
    """Has what is left of a suspended attempt stopped."""
    want_stopped(state, _reopen(state, record), reason)


def _reopen(state: State, record: JobRecord) -> AttemptRecord:
    """The attempt of which something is kept, which holds that and no devices, so that it can be ended as any other."""
    kept = record.kept
    assert kept is not None, f"nothing is kept of job {record.job.id}"
    leave(state, record)
    record.kept = None
    del state.kept[record.job.id]
    take_request(record, request_of(state, record), state.tells_apart)
    attempt = attempt_of(record, kept, state.now)
    record.attempt = attempt
    arrive(state, attempt, kept.booking)
    state.runs.setdefault(attempt.group, {})[attempt.key] = attempt
    state.use(record.job.queue, usage_of(attempt.bookings), 1)
    expect_end(state, attempt)
    if state.policy.targets is not Targets.KEEP:
        state.standing.add(attempt, state.order(record))
    return attempt


def stop_failed(state: State, attempt: AttemptRecord) -> None:
    """Asks again later, less and less often: until somebody says the devices are free, they are not."""
    attempt.stop_failures += 1
    delay_ms = backoff_ms(attempt.stop_failures)
    state.set_timer(state.now + delay_ms, "stop_again", attempt.job.id, attempt.number)


def start_failed(state: State, attempt: AttemptRecord, reason: str, retryable: bool) -> None:
    """The whole claim goes back; the job tries again after a while, or has failed."""
    record = state.jobs[attempt.job.id]
    record.start_failures += 1
    _close(state, attempt)
    if attempt.phase is Phase.STOPPING or attempt.stop_reason is not None or record.cancelled:
        _after_stop(state, record, attempt)
    elif retryable:
        _again(state, record, backoff_ms(record.start_failures))
    else:
        _finish(state, record, JobState.FAILED, reason)


def end(state: State, attempt: AttemptRecord) -> None:
    """An attempt that was to be stopped is gone."""
    _close(state, attempt)
    _after_stop(state, state.jobs[attempt.job.id], attempt)


def withdraw(state: State, key: str) -> None:
    """Takes back a claim for somebody who goes before."""
    job, _, number = key.rpartition("/")
    attempt = state.attempt(job, int(number))
    if attempt is not None and attempt.phase is Phase.CLAIMED:
        attempt.stop_reason = StopReason.PREEMPTED
        _close(state, attempt)
        _again(state, state.jobs[job], 0)


def cut_answered(state: State, cut: Repartition) -> None:
    """The backend has said how a cut came out: the device can be given again, unless another cut is under way."""
    if not any((other.node, other.device) == (cut.node, cut.device) for other in state.cuts.values()):
        state.capacity.set_cutting(state.topology.number[cut.node], cut.device, cutting=False)


def ended_by_itself(
    state: State, attempt: AttemptRecord, outcome: Outcome, reason: str, ended_ms: int | None = None
) -> None:
    """An attempt has ended without our asking, or before our asking reached it; at `ended_ms`, where that is known."""
    record = state.jobs[attempt.job.id]
    attempt.stop_reason = attempt.stop_reason or state.to_stop.get(attempt.key)
    at_ms = _possible_end_ms(state, attempt, ended_ms)
    _close(state, attempt, at_ms)
    _after_end(state, record, attempt, outcome, reason)
    if record.final is not None:
        record.ended_ms = at_ms


def _possible_end_ms(state: State, attempt: AttemptRecord, ended_ms: int | None) -> int:
    """When an attempt ended by what its backend says: not before what is known of its run, and not after now."""
    if ended_ms is None:
        return state.now
    known_ms = max(attempt.created_ms, attempt.counted_ms, attempt.durable_ms)
    return min(max(ended_ms, known_ms), state.now)


def _after_end(state: State, record: JobRecord, attempt: AttemptRecord, outcome: Outcome, reason: str) -> None:
    if outcome is Outcome.SUCCEEDED:
        _finish(state, record, JobState.SUCCEEDED, reason)
    elif record.cancelled or attempt.stop_reason is not None:
        _after_stop(state, record, attempt)
    elif outcome is Outcome.LOST:
        _again(state, record, 0)
    else:
        record.failures += 1
        if record.failures <= record.job.retry_limit:
            _again(state, record, backoff_ms(record.failures))
        else:
            _finish(state, record, JobState.FAILED, reason)


def _close(state: State, attempt: AttemptRecord, at_ms: int | None = None) -> None:
    """Gives everything back that the attempt holds or was promised. It has run until `at_ms`, by default until now."""
    ended_ms = state.now if at_ms is None else at_ms
    capacity = state.capacity
    company_changed(state, attempt)
    _keep_nothing(state, attempt)
    if state.cells is not None:
        state.cells.gone(attempt.key)
    for booking in attempt.bookings:
        if attempt.waits:
            capacity.unclaim(booking)
        else:
            if attempt.ceding or booking in attempt.removing:
                capacity.keep(booking)
            capacity.release(booking)
        depart(state, attempt, booking)
    if not attempt.ceding:
        state.use(attempt.job.queue, usage_of(attempt.staying), -1, ended_ms)
    state.standing.remove(attempt)
    _forget_end(state, attempt)
    record = state.jobs[attempt.job.id]
    record.executed_before_ms += attempt.executed_ms(ended_ms)
    record.service_before_gpu_ms += attempt.service_gpu_ms(ended_ms)
    record.stopped_ms = ended_ms
    record.attempt = None
    if attempt.phase is not Phase.CLAIMED:
        _forget_kept(state, record)
    key = attempt.key
    del state.runs[attempt.group][key]
    state.adjustments.pop(attempt.job.id, None)
    state.to_stop.pop(key, None)
    present: dict[str, AttemptRecord]
    for present in (
        state.waiting_claims,
        state.preparing,
        state.elastic,
        state.saving,
        state.revocable,
        state.leaving,
    ):
        if present:
            present.pop(key, None)


def _after_stop(state: State, record: JobRecord, attempt: AttemptRecord) -> None:
    if record.cancelled:
        _finish(state, record, JobState.CANCELLED, record.end_reason or "cancelled")
    elif attempt.stop_reason is StopReason.MAX_RUN:
        _finish(state, record, JobState.FAILED, "ran longer than max_run")
    elif attempt.stop_reason is StopReason.OUTDONE:
        _finish(state, record, JobState.CANCELLED, "outdone by others of its sweep")
    elif attempt.stop_reason is StopReason.MISPLACED:
        record.start_failures += 1
        _again(state, record, backoff_ms(record.start_failures))
    else:
        if attempt.stop_reason is StopReason.PREEMPTED:
            record.preemptions += 1
        _again(state, record, 0)


def _again(state: State, record: JobRecord, delay_ms: int) -> None:
    """Back in line, in the same place as before."""
    if record.cancelled:
        _finish(state, record, JobState.CANCELLED, record.end_reason or "cancelled")
        return
    if delay_ms:
        record.not_before_ms = state.now + delay_ms
        state.set_timer(record.not_before_ms, "line_up", record.job.id)
    line_up(state, record)


def _finish(state: State, record: JobRecord, final: JobState, reason: str) -> None:
    if record.kept is not None:
        # Its processes go first; that is told when they are gone.
        discard(state, record, StopReason.CANCELLED)
        return
    leave(state, record)
    state.scaled.pop(record.job.id, None)
    record.final = final
    calm(state, record)
    record.ended_ms = state.now
    record.end_reason = reason
    if state.policy.estimate_permille is not None and record.executed_before_ms:
        state.history.add(record.job, record.executed_before_ms)
    give_up_array_seat(state, record)
    call_array(state, record.job.array_of)
    call_dependents(state, record.job.id)


def cancel(state: State, record: JobRecord, reason: str) -> None:
    """Ends a job as soon as its devices are free. The reason is told from now on."""
    record.cancelled = True
    record.end_reason = reason
    if record.attempt is None:
        _finish(state, record, JobState.CANCELLED, record.end_reason or "cancelled")
    else:
        want_stopped(state, record.attempt, StopReason.CANCELLED)
