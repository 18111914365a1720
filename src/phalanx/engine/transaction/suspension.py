"""Suspension: a preempted attempt that saves nothing keeps its processes, and gives its devices to other jobs.

Its device memory goes to the memory of its node, which is booked for it until it has devices of that node again. Its
job is pending like any other meanwhile, for that node alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from phalanx.cluster.capacity import MB_PER_GB, MEMORY, MEMORY_LIMIT, Booking
from phalanx.engine.state.records import AttemptRecord, JobRecord, Kept, Phase
from phalanx.engine.state.state import State
from phalanx.engine.transaction.undo_log import UndoLog
from phalanx.placement.fit import NODE_NAME
from phalanx.workload.gang import Role
from phalanx.workload.job import Job

MS_PER_S = 1000


def host_mb(state: State, attempt: AttemptRecord) -> int:
    """The memory of its node that an attempt would need beside its own, were it suspended; 0 if it cannot be.

    An attempt that saves its work is stopped: it goes on anywhere, and keeps nothing from other jobs meanwhile.
    """
    if state.suspend is None or state.cells is not None or attempt.phase is not Phase.RUNNING:
        return 0
    if not attempt.gpus or attempt.job.gang.elastic or state.jobs[attempt.job.id].saves:
        return 0
    nodes = dict.fromkeys(booking.node for booking in attempt.bookings)
    if len(nodes) > 1 or any(booking.portion is not None for booking in attempt.bookings):
        return 0
    return attempt.device_memory_mb or sum(_device_mb(state, booking) for booking in attempt.bookings)


def can_suspend(state: State, attempt: AttemptRecord) -> bool:
    """Whether an attempt could be suspended for a job, were all memory of its node free but for its own."""
    memory_mb = host_mb(state, attempt)
    if not memory_mb:
        return False
    kept = together(own_memory(attempt), moved_memory(attempt, memory_mb))
    return all(state.capacity.amounts[number].total[kept.node] >= amount for number, amount in kept.needs)


def _device_mb(state: State, booking: Booking) -> int:
    """All the memory of its devices: as long as nothing is measured, it may have taken that."""
    return int(booking.devices.bit_count() * state.topology.nodes[booking.node].gpu_memory_gb * MB_PER_GB)


def own_memory(attempt: AttemptRecord) -> Booking:
    """The memory that an attempt has, without its devices: it keeps that."""
    own = dict.fromkeys((MEMORY, MEMORY_LIMIT), 0)
    for booking in attempt.bookings:
        for number, amount in booking.needs:
            if number in own:
                own[number] += amount
    return _memory(attempt, own[MEMORY], own[MEMORY_LIMIT])


def moved_memory(attempt: AttemptRecord, memory_mb: int) -> Booking:
    """What the device memory of an attempt takes of its node, from when it begins to be moved there."""
    return _memory(attempt, memory_mb, memory_mb)


def _memory(attempt: AttemptRecord, asked_mb: int, limit_mb: int) -> Booking:
    needs = ((MEMORY, asked_mb), (MEMORY_LIMIT, limit_mb))
    return Booking(attempt.bookings[0].node, 0, needs, None, f"{attempt.job.id}#kept")


def together(one: Booking, other: Booking) -> Booking:
    """The memory of both."""
    amounts = zip(one.needs, other.needs, strict=True)
    return one._replace(needs=tuple((number, amount + more) for (number, amount), (_, more) in amounts))


def loss_gpu_ms(state: State, attempt: AttemptRecord, now: int) -> int:
    """GPU time lost if an attempt is preempted now: by being suspended where that can be, else by being stopped."""
    memory_mb = host_mb(state, attempt)
    if not memory_mb or state.suspend is None or not _is_free(state, moved_memory(attempt, memory_mb)):
        return attempt.lost_gpu_ms(now)
    moving_ms = MS_PER_S * memory_mb // state.suspend.out_mb_per_s + MS_PER_S * memory_mb // state.suspend.in_mb_per_s
    return attempt.gpu_permille * moving_ms // 1000


def _is_free(state: State, memory: Booking) -> bool:
    amounts = state.capacity.amounts
    return all(amounts[number].free[memory.node] >= amount for number, amount in memory.needs)


def hold_kept(steps: UndoLog, victims: Sequence[AttemptRecord], leaving: Mapping[str, AttemptRecord]) -> dict[str, int]:
    """As if the victims that can be were suspended, with what they and terminating attempts hold given back before: the
    memory that each needs beside its own. What is moved to the host is there before terminating attempts have left.
    """
    found: dict[str, int] = {}
    there = {**leaving, **{victim.key: victim for victim in victims}}
    for victim in sorted(victims, key=lambda victim: victim.key):
        memory_mb = host_mb(steps.state, victim)
        if not memory_mb:
            continue
        kept = together(own_memory(victim), moved_memory(victim, memory_mb))
        others = [each for each in there.values() if each is not victim]
        if _is_free(steps.state, kept) and _is_there(steps.state, kept, others) and steps.hold((kept,)):
            found[victim.key] = memory_mb
            del there[victim.key]
    return found


def _is_there(state: State, kept: Booking, leaving: Iterable[AttemptRecord]) -> bool:
    """Whether a node has memory while the attempts that leave it are still there."""
    amounts = state.capacity.amounts
    left = dict.fromkeys((number for number, _ in kept.needs), 0)
    for attempt in leaving:
        for booking in attempt.bookings:
            for number, amount in booking.needs:
                if booking.node == kept.node and number in left:
                    left[number] += amount
    return all(
        amounts[number].held[kept.node] + left[number] + amount <= amounts[number].total[kept.node]
        for number, amount in kept.needs
    )


def request_of(state: State, record: JobRecord) -> Job:
    """What a job asks for: if it is suspended, devices of its node, and no memory, which it has there."""
    job, kept = record.job, record.kept
    if kept is None:
        return job
    roles = tuple(_without_memory(role) for role in job.gang.roles)
    selector = (*job.node_selector, (NODE_NAME, state.topology.nodes[kept.booking.node].name))
    return replace(job, gang=replace(job.gang, roles=roles), node_selector=selector)


def _without_memory(role: Role) -> Role:
    members = tuple(_without_memory(member) for member in role.members)
    return replace(role, task=replace(role.task, memory_mb=0, memory_limit_mb=0), members=members)


def kept_of(attempt: AttemptRecord, booking: Booking, now: int) -> Kept:
    """What is left of an attempt that is suspended now."""
    attempt.count_service(now)
    return Kept(
        attempt.number,
        attempt.created_ms,
        attempt.next_seq,
        booking,
        attempt.placement,
        attempt.device_memory_mb,
        attempt.unsaved_sizes,
        attempt.durable_ms,
        attempt.ran_ms(now),
    )


def attempt_of(record: JobRecord, kept: Kept, now: int) -> AttemptRecord:
    """The attempt of which something is kept: it holds that, and no devices."""
    return AttemptRecord(
        record.job,
        kept.attempt,
        kept.placement,
        [kept.booking],
        waits=False,
        phase=Phase.SUSPENDED,
        created_ms=kept.created_ms,
        counted_ms=now,
        next_seq=kept.next_seq,
        device_memory_mb=kept.device_memory_mb,
        unsaved_sizes=kept.unsaved_sizes,
        durable_ms=kept.durable_ms,
        ran_before_ms=kept.ran_ms,
    )


def in_the_way_of(state: State, record: JobRecord) -> list[JobRecord]:
    """Suspended jobs behind another in the order: what they keep is not kept from that one."""
    key = state.key(record)
    behind = [state.jobs[job] for job in state.kept if state.jobs[job].queued is not None and job != record.job.id]
    return sorted((each for each in behind if state.key(each) > key), key=state.key)


def is_kept(state: State, job: str, number: int) -> bool:
    """Whether an attempt is suspended, and was given no devices since."""
    record = state.jobs.get(job)
    if record is None or record.attempt is not None or record.kept is None:
        return False
    return record.kept.attempt == number
