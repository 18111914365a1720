"""Which devices an attempt holds, until when, and for which jobs it may be preempted: indexes over running attempts."""

from __future__ import annotations

from phalanx.cluster.capacity import Booking
from phalanx.engine.fold.enqueue import rekey
from phalanx.engine.state.records import AttemptRecord, Phase
from phalanx.engine.state.state import State

SURPRISE_MS = 1_000
"""An end that is earlier or later than expected by more than this makes reservations be worked out anew."""

BACKOFF_FIRST_MS, BACKOFF_MAX_MS = 1_000, 300_000

CRASH_MS = 600_000
"""An attempt that ends badly sooner than this after it has started has crashed: a preemption for it was wasted."""

WASTED_FIRST_MS, WASTED_MAX_MS = 600_000, 86_400_000


def backoff_ms(failures: int) -> int:
    """How long to wait after the n-th failure in a row: doubling, bounded."""
    return int(min(BACKOFF_FIRST_MS << min(failures - 1, 20), BACKOFF_MAX_MS))


def pause_ms(wasted: int) -> int:
    """How long a job for which others were preempted waits after so many crashes: one may be bad luck."""
    return int(min(WASTED_FIRST_MS << min(wasted - 2, 20), WASTED_MAX_MS)) if wasted > 1 else 0


def expect_end(state: State, attempt: AttemptRecord) -> None:
    """Works out when an attempt will have left, for reservations of what it holds."""
    if state.reserves:
        record = state.jobs[attempt.job.id]
        left_ms = max(record.estimate_ms - record.executed_before_ms, 0)
        since_ms = attempt.started_ms if attempt.started_ms >= 0 else attempt.created_ms
        state.ends.expect(attempt, since_ms + left_ms)


def limit_waits(state: State) -> None:
    """From now on devices may be reserved for a job past its max_wait: notes when each attempt will have left."""
    known = state.reserves
    state.waits_are_limited = True
    if not known:
        know_lengths(state)


def know_lengths(state: State) -> None:
    """Takes note of how long each job runs, where that has come to matter."""
    for attempt in state.attempts():
        expect_end(state, attempt)
    for kind in state.classes.values():
        kind.lengths_ms = sorted(state.jobs[job].estimate_ms for _, job in kind.jobs)


def forget_end(state: State, attempt: AttemptRecord) -> None:
    """An end that comes at another time than was expected changes what can be reserved."""
    expected_ms = state.ends.forget(attempt)
    if expected_ms is not None and abs(expected_ms - state.now) > SURPRISE_MS:
        state.reservations_stale = True


def arrive(state: State, attempt: AttemptRecord, booking: Booking) -> None:
    """Takes note of an attempt on a node."""
    state.on_node.setdefault(booking.node, {})[attempt.key] = attempt
    state.preemptible_gpus.add(attempt, booking, 1)


def depart(state: State, attempt: AttemptRecord, booking: Booking) -> None:
    """Undoes `arrive`."""
    state.on_node[booking.node].pop(attempt.key, None)
    state.preemptible_gpus.add(attempt, booking, -1)


def stand_anew(state: State, attempt: AttemptRecord) -> None:
    """With its size an attempt's place in the order may change, and when that changes next."""
    state.standing.recount(attempt)
    rekey(state, state.jobs[attempt.job.id])
    may_give_way(state, attempt)


def may_give_way(state: State, attempt: AttemptRecord) -> None:
    """An attempt that could not be preempted before can be from now on: pending jobs may find more than before."""
    if state.makes_room and attempt.phase is Phase.RUNNING:
        for booking in attempt.bookings:
            state.capacity.grown |= state.topology.bit[booking.node]
