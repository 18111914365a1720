"""Pending jobs: which are enqueued, and which are ineligible yet and why."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import replace

from phalanx.engine.fold.request import take_request
from phalanx.engine.state.records import (
    EquivalenceClass,
    JobRecord,
    JobState,
    Phase,
    StopReason,
    estimate_ms,
    tasks_of,
)
from phalanx.engine.state.state import State
from phalanx.placement.place import ever
from phalanx.policy.policy import Reserve, Targets
from phalanx.protocol.plan import RESERVATIONS_MAX
from phalanx.protocol.reason import Reason
from phalanx.workload.gang import Gang
from phalanx.workload.job import After, Dependency


def enqueue(state: State, record: JobRecord) -> None:
    """Enqueues a pending job, or sets the reason why it is ineligible yet."""
    leave(state, record)
    had_seat = give_up_array_seat(state, record)
    record.parked = _obstacle(state, record)
    if record.passed_ms is not None:
        state.look_for_first(record.job.queue, 0 if record.impatient else record.passed_ms)
    if record.parked is not None:
        if record.parked is Reason.ARRAY_LIMIT:
            state.array_parked.setdefault(record.job.array_of, {})[record.job.id] = None
        if had_seat:
            call_array(state, record.job.array_of)
        return
    if record.job.array is not None:
        record.array_seat = True
        state.array_active[record.job.array_of] = state.array_active.get(record.job.array_of, 0) + 1
    _take_shape(state, record)
    record.estimate_ms = _estimate(state, record)
    record.queued = state.order(record)
    waiting = state.classes.get(record.shape)
    if waiting is None:
        waiting = state.classes[record.shape] = EquivalenceClass(state.seq)
        if not _stands_behind_the_head(state, record):
            state.newest_class = state.seq
    elif _has_better_chances(state, waiting, record):
        waiting.born = state.newest_class = state.seq
        state.classes[record.shape] = state.classes.pop(record.shape)
    waiting.add(record.queued, record.job.id)
    if state.class_index is not None:
        state.class_index.enqueue(waiting, record)
    if state.reserves:
        insort(waiting.lengths_ms, record.estimate_ms)
    state.in_line += 1
    state.in_line_gpus += record.gpus
    _expect_change(state, record)


def _estimate(state: State, record: JobRecord) -> int:
    """How long a job is expected to run: what it says, or what its like have run, or what it may at most."""
    permille = state.policy.estimate_permille
    if permille is None or record.job.duration_ms is not None:
        return estimate_ms(record.job)
    learned_ms = state.history.quantile_ms(record.job, permille, record.executed_before_ms)
    most_ms = estimate_ms(record.job)
    return most_ms if learned_ms is None else min(learned_ms, most_ms)


def _stands_behind_the_head(state: State, record: JobRecord) -> bool:
    """Whether no decision need look at a job for now: it comes after a head that no job may pass."""
    head = state.jobs.get(state.head)
    return (
        head is not None and state.policy.lets_none_pass and head.queued is not None and head.queued < state.key(record)
    )


def _has_better_chances(state: State, waiting: EquivalenceClass, record: JobRecord) -> bool:
    """Whether a job may start where the rest of its class was refused, so that the class is to be tried anew.

    More attempts are preempted for a job that goes before them. Where not every job may pass, fewer hold it up. A
    shorter one may end before a reserved time. And devices may be reserved for a job that has no reservation yet.
    """
    if state.policy.reserve is Reserve.EVERYBODY and len(state.reservations) < RESERVATIONS_MAX:
        return True
    place_matters = state.policy.targets is not Targets.KEEP or not state.policy.lets_all_pass
    if place_matters and state.key(record) < waiting.head[0]:
        return True
    return bool(waiting.lengths_ms) and record.estimate_ms < waiting.lengths_ms[0]


def _take_shape(state: State, record: JobRecord) -> None:
    """Asks the policy in which shape a gang is to be placed now."""
    if not state.policy.shapes_gangs or record.kept is not None:
        return
    gang = shape_now(state, record)
    if gang != record.asked.gang:
        take_request(record, replace(record.job, gang=gang), state.tells_apart)


def shape_now(state: State, record: JobRecord) -> Gang:
    """In which shape the policy has a gang placed now; its own, where only that could ever fit.

    What a policy asks for beside the GPUs (memory of the host for what is moved there, one node) no node may have.
    """
    gang, own = state.policy.shape(record, state), record.job
    if gang == own.gang or ever(state.fit, replace(own, gang=gang)) or not ever(state.fit, own):
        return gang
    return own.gang


def rekey(state: State, record: JobRecord) -> None:
    """Puts a job in the place that its key says now; an attempt that runs may be preempted by more jobs from now on."""
    if record.queued is not None:
        enqueue(state, record)
    elif record.attempt is not None and state.policy.targets is not Targets.KEEP:
        attempt = record.attempt
        key = state.order(record)
        if attempt.standing is not None:
            if key > attempt.standing:
                for booking in attempt.bookings:
                    state.capacity.grown |= state.topology.bit[booking.node]
            state.stand(attempt, key)
        if attempt.phase is Phase.RUNNING and attempt.stoppable and _belongs_elsewhere(state, record):
            state.to_stop.setdefault(attempt.key, StopReason.PREEMPTED)
        _expect_change(state, record)


def _belongs_elsewhere(state: State, record: JobRecord) -> bool:
    """Whether the policy shapes a gang that runs for other GPU types than it has: it is stopped to start there."""
    if not state.policy.shapes_gangs or record.attempt is None:
        return False
    tasks = tasks_of(shape_now(state, record).roles)
    nodes, number = state.topology.nodes, state.topology.number
    for slot in record.attempt.placement.slots:
        types = tasks[slot.role].gpu_types if slot.devices and slot.role in tasks else ()
        if types and nodes[number[slot.node]].gpu_type not in types:
            return True
    return False


def rekey_all(state: State) -> None:
    """Puts all jobs in the places that their keys say now, with the sizes that the policy wants them to have."""
    in_line = [job for waiting in state.classes.values() for _, job in waiting.jobs]
    if state.policy.sets_sizes:
        _size_all(state, in_line)
    for job in in_line:
        enqueue(state, state.jobs[job])
    for attempt in list(state.attempts_present()):
        rekey(state, state.jobs[attempt.job.id])


def _size_all(state: State, in_line: list[str]) -> None:
    present = [*in_line, *(attempt.job.id for attempt in state.attempts_present())]
    records = sorted((state.jobs[job] for job in present), key=lambda record: record.number)
    sizes = state.policy.sizes(records, state)
    for record in records:
        record.sizes = sizes.get(record.job.id, {})


def _expect_change(state: State, record: JobRecord) -> None:
    if state.policy.has_changes:
        at_ms = state.policy.changes(record, state)
        # A change that was expected before is not to come any more.
        record.change_ms = -1 if at_ms is None else max(at_ms, state.now + 1)
        if at_ms is not None:
            state.set_timer(record.change_ms, "change", record.job.id, record.attempts)


def leave(state: State, record: JobRecord) -> None:
    """Dequeues a job."""
    record.parked = None
    if record.queued is None:
        return
    if not state.policy.lets_all_pass:
        # It may have been the head: then another job is, which may fit.
        state.newest_class = state.seq
    if record.overdue and state.quotas:
        # Of its queue's limit something may have been reserved for it, which any job may have now.
        state.capacity.grown |= state.topology.everything
    waiting = state.classes[record.shape]
    waiting.remove(record.queued, record.job.id)
    if state.class_index is not None:
        state.class_index.dequeue(waiting)
    if state.reserves:
        state.reservations_stale |= any(reservation.job == record.job.id for reservation in state.reservations)
        del waiting.lengths_ms[bisect_left(waiting.lengths_ms, record.estimate_ms)]
    record.queued = None
    state.in_line -= 1
    state.in_line_gpus -= record.gpus
    if not waiting.jobs:
        del state.classes[record.shape]


def call_dependents(state: State, job: str) -> None:
    """Looks again at jobs that wait for a job that has started or ended."""
    for dependent in list(state.dependents.get(job, ())):
        record = state.jobs[dependent]
        if record.attempt is None and record.final is None:
            enqueue(state, record)


def call_array(state: State, array: str) -> None:
    """Lets the next member of an array in, now that one has made way."""
    for member in list(state.array_parked.pop(array, ())):
        record = state.jobs[member]
        if record.parked is Reason.ARRAY_LIMIT:
            enqueue(state, record)


def give_up_array_seat(state: State, record: JobRecord) -> bool:
    """A member counts against its array's limit while it is enqueued or has an attempt. Whether it did."""
    if not record.array_seat:
        return False
    record.array_seat = False
    state.array_active[record.job.array_of] -= 1
    return True


def _obstacle(state: State, record: JobRecord) -> Reason | None:
    if record.held:
        return Reason.HELD
    if record.job.scale is not None and record.job.scale.is_at_zero:
        return Reason.SCALED_TO_ZERO
    for dependency in record.job.after:
        obstacle = _dependency(state, dependency)
        if obstacle is not None:
            return obstacle
    if record.job.begin_ms is not None and record.job.begin_ms > state.now:
        return Reason.BEGIN_TIME
    if record.not_before_ms > state.now:
        return Reason.BACKOFF
    array = record.job.array
    if (
        array is not None
        and array.parallel_max
        and state.array_active.get(record.job.array_of, 0) >= array.parallel_max
    ):
        return Reason.ARRAY_LIMIT
    return None


def _dependency(state: State, dependency: Dependency) -> Reason | None:
    other = state.jobs[dependency.job]
    if dependency.on is After.START:
        return None if other.first_start_ms is not None or other.final is not None else Reason.DEPENDENCY
    if other.final is None:
        return Reason.DEPENDENCY
    met = {
        After.END: True,
        After.SUCCESS: other.final is JobState.SUCCEEDED,
        After.FAILURE: other.final is JobState.FAILED,
    }[dependency.on]
    return None if met else Reason.DEPENDENCY_FAILED
