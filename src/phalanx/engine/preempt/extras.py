"""Extras: what elastic attempts have beyond their minimum is lent. They took it while no job was pending. A job that is
pending now would have kept them from taking it, and has it back, whatever the order.
"""

from __future__ import annotations

from phalanx.cluster.capacity import Booking
from phalanx.engine.preempt.excess import Excess
from phalanx.engine.preempt.way import Context
from phalanx.engine.state.elastic import surplus
from phalanx.engine.state.records import AttemptRecord, JobRecord, gpu_permille_of, usage_of
from phalanx.engine.state.state import State
from phalanx.engine.state.yielding import runs_its_least
from phalanx.engine.transaction.transaction import Transaction
from phalanx.placement.placement import Slot
from phalanx.workload.job import Kind

Member = tuple[AttemptRecord, Slot]
"""A member of an elastic attempt."""


def are_lent(state: State) -> bool:
    """Whether any attempt has extras that a job may have; where the policy sets sizes, it says what each has."""
    if state.policy.sets_sizes or state.cells is not None:
        return False
    return any(surplus(attempt) for attempt in state.elastic.values() if _lends(attempt))


def lent_to(transaction: Transaction, head: JobRecord, context: Context) -> list[Member]:
    """Members that a head may have the devices of. The last of them goes first: the last submitted job gives first,
    and of its members the highest rank.
    """
    state, excess = transaction.state, Excess(transaction.state, head)
    found: list[Member] = []
    mark = transaction.mark()
    for attempt in sorted(state.elastic.values(), key=lambda each: each.created_ms):
        going = context.shrinking.get(attempt.key, ())
        if not _lends(attempt) or (attempt.key in context.untouchable and not going):
            continue
        given: list[Member] = []
        for slot in surplus(attempt):
            if slot in going:
                continue
            booking = booking_of(attempt, slot)
            if _is_owed(head, attempt, state) and excess.give(attempt.job.queue, gpu_permille_of((booking,))):
                given.append((attempt, slot))
                transaction.use(attempt.job.queue, usage_of((booking,)), -1)
        found += reversed(given)
    transaction.undo_to(mark)
    return found


def booking_of(attempt: AttemptRecord, slot: Slot) -> Booking:
    """What a member of an attempt holds."""
    return attempt.bookings[attempt.placement.slots.index(slot)]


def _lends(attempt: AttemptRecord) -> bool:
    """Not a service: its replicas are there for its callers. Nor one that is never stopped, as it would be if the
    backend failed to have it shrink.
    """
    return attempt.job.kind is not Kind.SERVICE and attempt.job.preemptible


def _is_owed(head: JobRecord, attempt: AttemptRecord, state: State) -> bool:
    """A queue keeps its nominal quota; what it borrows goes to jobs of other queues, while it borrows.

    Also to a job that has made way for the attempt. It stops nothing by that, so that the two cannot do so in turn.
    """
    if not state.quotas or head.job.queue == attempt.job.queue:
        return True
    return state.quotas.borrows(attempt.job.queue) and not runs_its_least(state, head, attempt)
