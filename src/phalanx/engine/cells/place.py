"""Placing by cells: a gang gets leaves of its virtual cluster, or a claim on those of victims, or a pending reason.

The cells choose the leaves and the victims: there is no other search for victims, and no policy is asked about them.
"""

from __future__ import annotations

from phalanx.engine.cells.reserve import delays, due_ms
from phalanx.engine.pending.outcome import PLACED, Candidate, Outcome
from phalanx.engine.plan.builder import PlanBuilder
from phalanx.engine.preempt.preemption import PreemptionPlan
from phalanx.engine.state.elastic import surplus
from phalanx.engine.state.records import AttemptRecord, JobRecord, Phase
from phalanx.engine.transaction.cells import Found, search, shrink, tenancy_of
from phalanx.placement.cells.ask import shares_leaves
from phalanx.placement.place import placement_of
from phalanx.placement.placement import Slot
from phalanx.policy.policy import Reserve
from phalanx.protocol.cells_steps import Left
from phalanx.protocol.reason import Reason

PASSABLE = (Reason.NEVER_FITS, Reason.QUOTA)
"""Reasons of a job that every job behind it may pass."""

Shrinks = tuple[tuple[AttemptRecord, tuple[Slot, ...]], ...]
"""Elastic attempts, and the members that they give back."""


def place(builder: PlanBuilder, candidate: Candidate) -> Outcome:
    """Gives a candidate its cells, with all that follows for other jobs, or leaves it pending.

    Where the policy does not let every job pass a head, each virtual cluster has its own: no cluster waits for another.
    """
    policy, record = builder.state.policy, candidate.record
    rank = record.job.queue, record.job.priority < 0
    head, at_ms = builder.cell_heads.get(rank, (None, None))
    if head is record:
        head = at_ms = None
    if head is not None and not policy.backfill(head, record):
        return Outcome(Reason.BEHIND)
    mark = builder.transaction.mark()
    given = _find(builder, record)
    if isinstance(given, Reason):
        return _refuse(builder, candidate, given)
    if head is not None and at_ms is not None and delays(builder, head, at_ms, record):
        builder.transaction.undo_to(mark)
        return Outcome(Reason.RESERVED, spare_ms=at_ms - builder.now)
    _take(builder, record, *given)
    return PLACED


def _refuse(builder: PlanBuilder, candidate: Candidate, reason: Reason) -> Outcome:
    """Leaves a job pending. The first such job of its cluster may become a head, which not every job may pass."""
    if reason is Reason.UNDECIDED:
        # Only jobs that have got cells by this very plan are in its way: its earlier reason stands.
        if candidate.was_refused:
            return Outcome(reason)
        reason = Reason.GPUS
    policy, record = builder.state.policy, candidate.record
    rank = record.job.queue, record.job.priority < 0
    reserves = policy.reserve is not Reserve.NOBODY
    told = _told(builder, record, reason)
    if reason in PASSABLE or rank in builder.cell_heads or (policy.lets_all_pass and not reserves):
        return Outcome(told)
    builder.cell_heads[rank] = record, due_ms(builder, record) if reserves else None
    return Outcome(told)


def _told(builder: PlanBuilder, record: JobRecord, reason: Reason) -> Reason:
    """The pending reason of a job: the one it had before, where a leaf that is being repartitioned may be all that it
    lacks for a moment.
    """
    if reason is not Reason.GPUS or not builder.state.cuts or not shares_leaves(record.asked):
        return reason
    # A job that has just lost its claim is in no class until the decision is applied.
    waiting = builder.state.classes.get(record.shape)
    return reason if waiting is None or waiting.verdict is Reason.UNDECIDED else waiting.verdict


def _find(builder: PlanBuilder, record: JobRecord) -> tuple[Found, Shrinks] | Reason:
    """Cells for a job, the attempts in the way, and the members that elastic ones give back; or why it cannot be."""
    transaction = builder.transaction
    mark = transaction.mark()
    found = search(transaction, record)
    shrunk: Shrinks = ()
    if isinstance(found, Found) and any(victim.key in builder.state.elastic for victim in found.victims):
        transaction.undo_to(mark)
        beside = _beside_fewer(builder, record, found.victims)
        found, shrunk = beside if beside is not None else (search(transaction, record), ())
    if isinstance(found, Reason):
        return found
    if not _may_take(builder, found, shrunk):
        transaction.undo_to(mark)
        return Reason.GPUS
    return found, shrunk


def _may_take(builder: PlanBuilder, found: Found, shrunk: Shrinks) -> bool:
    """Whether every device is free, or on its way to be once the victims leave."""
    capacity = builder.state.capacity
    for node, devices, _, _, _ in found.bookings:
        going = capacity.ceding[node] | capacity.all_devices[node] & ~capacity.held[node]
        promised = capacity.claimed[node]
        for victim in found.victims:
            for booking in victim.bookings:
                if booking.node == node:
                    going |= booking.devices
                    promised &= ~(booking.devices if victim.waits else 0)
        for _, slots in shrunk:
            for slot in slots:
                if builder.state.topology.number[slot.node] == node:
                    going |= sum(1 << device for device in slot.devices)
        if devices & ~going or devices & promised:
            return False
    return True


def _take(builder: PlanBuilder, record: JobRecord, found: Found, shrunk: Shrinks) -> None:
    """Has the victims leave, takes claims back, and claims or allocates the devices."""
    transaction, tenancy = builder.transaction, tenancy_of(builder.state)
    going = tuple(victim for victim in found.victims if victim.key not in builder.leaving)
    for victim in going:
        if victim.phase is Phase.CLAIMED and tenancy.holds(victim.key):
            undone = tenancy.undo.mark()
            tenancy.gone(victim.key)
            transaction.step_in_cells(undone, (Left(victim.key),))
    builder.cell_ends.append((builder.now + record.estimate_ms, f"{record.job.id}/{record.next_attempt}"))
    builder.promise(record, PreemptionPlan(placement_of(found.seated), found.bookings, going, shrunk))


def _beside_fewer(
    builder: PlanBuilder, record: JobRecord, victims: tuple[AttemptRecord, ...]
) -> tuple[Found, Shrinks] | None:
    """Where the job fits with no attempt stopped, if elastic ones in the way give members back, no more than needed."""
    transaction, mark = builder.transaction, builder.transaction.mark()
    going: dict[str, tuple[AttemptRecord, list[Slot]]] = {}
    untouchable = builder.untouchable
    for victim in victims:
        if victim.key not in builder.state.elastic or victim.key in untouchable:
            continue
        slots = going.setdefault(victim.key, (victim, []))[1]
        for slot in surplus(victim):
            slots.append(slot)
            shrink(transaction, victim, [victim.bookings[victim.placement.slots.index(slot)]])
            here = transaction.mark()
            found = search(transaction, record)
            if isinstance(found, Found) and not found.victims:
                return found, tuple((attempt, tuple(each)) for attempt, each in going.values() if each)
            transaction.undo_to(here)
    transaction.undo_to(mark)
    return None
