"""`apply`: folds one record into the State. What a record may not say is refused before anything changes."""

from __future__ import annotations

from heapq import heappop

from phalanx.cluster.cluster import Health
from phalanx.engine.fold import (
    adjust,
    attempts,
    ending,
    enqueue,
    foreign,
    holding,
    maintenance,
    patience,
    reconfigure,
    sweeps,
)
from phalanx.engine.fold.amend import amend
from phalanx.engine.fold.assigned import assign
from phalanx.engine.fold.canary import place_canary
from phalanx.engine.fold.check import check, check_plan
from phalanx.engine.fold.lacks import plan_without
from phalanx.engine.quota.spending import Spending
from phalanx.engine.recovery.spares import settle as settle_spares
from phalanx.engine.recovery.spares import settle_anew
from phalanx.engine.state.elastic import does_without, lost
from phalanx.engine.state.journal import Record
from phalanx.engine.state.records import AttemptRecord, JobRecord, Phase, StopReason, shape_of
from phalanx.engine.state.scattered import expect_defragmentation
from phalanx.engine.state.state import State
from phalanx.engine.state.timer import Timer
from phalanx.engine.transaction.suspension import is_kept
from phalanx.placement.packings import packing as packing_named
from phalanx.policy.registry import policy as policy_named
from phalanx.protocol.action import ActionId, Repartition, Resize, Resume, Start, Stop, Suspend
from phalanx.protocol.event import (
    Accepted,
    Advice,
    AttemptEnded,
    CanaryPlaced,
    ClusterChanged,
    ClusterDefined,
    DeviceHealthChanged,
    DeviceMemoryMeasured,
    DevicesAssigned,
    Done,
    Event,
    Failed,
    Finding,
    ForeignUse,
    JobCancelled,
    JobChanged,
    JobHeld,
    JobReleased,
    JobRequeued,
    JobSubmitted,
    Lost,
    NodeHealthChanged,
    PolicyChanged,
    Progress,
    TermBegun,
    TimerDue,
)
from phalanx.protocol.plan import Plan
from phalanx.workload.job import Job

FREEING = (Stop, Resize, Suspend)
"""Actions that come before claims: what they free may be claimed."""


def apply(state: State, record: Record, line: bytes) -> None:
    """Folds a record, written as `line`, in. Raises ValueError, and changes nothing, if it contradicts the State."""
    if record.seq != state.seq + 1:
        raise ValueError(f"record {record.seq} does not follow record {state.seq}")
    if record.now < state.now:
        raise ValueError(f"record {record.seq} is of {record.now} ms, before {state.now} ms: time never goes back")
    body = record.body
    if isinstance(body, Plan):
        check_plan(state, body)
        _follow(state, record, line)
        _decision(state, body)
        if state.cluster.recovery is not None:
            settle_spares(state)
        patience.look(state)
        if state.policy.observes_plans:
            state.policy.observe_plan(state.memory, body, record.now)
        return
    check(state, body)
    policy = state.policy
    wakes = policy.has_wakeups and _policy_wakes(state, record.now)
    _follow(state, record, line)
    if state.timers and state.timers[0].at_ms <= record.now:
        _fire_timers(state)
    _event(state, body)
    if state.cluster_to_be is not None:
        reconfigure.retire(state)
    if state.foreign_short:
        foreign.settle_short(state)
    if state.cells is not None:
        state.cells.follow(state.capacity)
    if state.cluster.recovery is not None:
        settle_spares(state)
    _drop_moot_timers(state)
    # The event may have brought another policy.
    policy = state.policy
    if policy.observes_events:
        policy.observe(state.memory, body, record.now)
    if wakes or isinstance(body, Advice):
        enqueue.rekey_all(state)
    if policy.has_adjustments:
        adjust.review(state, body)
    patience.look(state)


def _follow(state: State, record: Record, line: bytes) -> None:
    state.seq = record.seq
    state.now = record.now
    state.digest.add(line)


def _policy_wakes(state: State, now: int) -> bool:
    """Whether the moment has come at which the keys of all jobs change. With an adviser, it comes with the advice."""
    policy = state.policy
    if policy.adviser:
        return False
    due_ms = policy.next_wakeup(state.memory, state.now)
    return due_ms is not None and due_ms <= now


def _event(state: State, event: Event) -> None:
    # What there is most of comes first: cases are looked at in turn.
    match event:
        case JobSubmitted(job=job):
            _submit(state, job)
        case Done(action=action):
            _done(state, action)
        case AttemptEnded(job=name, attempt=number, outcome=outcome, reason=reason, ended_ms=ended_ms):
            attempt = state.attempt(name, number)
            if attempt is not None and not attempt.waits:
                ending.ended_by_itself(state, attempt, outcome, reason, ended_ms)
            elif attempt is None and is_kept(state, name, number):
                ending.kept_ended(state, state.jobs[name], outcome, reason)
        case Progress():
            _progress(state, event)
        case DeviceMemoryMeasured(job=name, attempt=number, memory_mb=memory_mb):
            attempt = state.attempt(name, number)
            if attempt is not None:
                attempt.device_memory_mb = memory_mb
        case Accepted() | Advice() | Finding() | TimerDue():
            pass
        case JobChanged(job=job):
            amend(state, state.jobs[job.id], job)
        case JobCancelled(job=name, reason=reason):
            ending.cancel(state, state.jobs[name], reason)
        case JobHeld(job=name):
            _hold(state, state.jobs[name], held=True)
        case JobReleased(job=name):
            _hold(state, state.jobs[name], held=False)
        case JobRequeued(job=name):
            _requeue(state, state.jobs[name])
        case Failed(action=action, reason=reason, retryable=retryable):
            _failed(state, action, reason, retryable)
        case Lost(action=action):
            _lost(state, action)
        case NodeHealthChanged(node=node, health=health):
            _node_health(state, state.topology.number[node], health)
        case CanaryPlaced():
            place_canary(state, event)
        case DeviceHealthChanged(node=node, device=device, health=health):
            _device_health(state, state.topology.number[node], device, health)
        case ForeignUse():
            foreign.use(state, event)
        case DevicesAssigned(job=name, attempt=number, slots=slots):
            attempt = state.attempt(name, number)
            if attempt is not None:
                assign(state, attempt, slots)
        case ClusterDefined(cluster=cluster, policy=policy, term=term, placement=placement, lacks=lacks):
            state.define(cluster)
            state.lacks = lacks
            state.suspend = event.suspend
            state.packing = packing_named(placement)
            state.policy = policy_named(policy)
            state.count_preemptible()
            state.spending = Spending(state.policy.half_life_ms or 0)
            for queue in state.quotas.leaves():
                state.know_queue(queue)
            state.term = term
            maintenance.set_out(state)
        case ClusterChanged(cluster=cluster):
            reconfigure.change_cluster(state, cluster)
            settle_anew(state)
        case PolicyChanged(policy=policy, placement=placement):
            reconfigure.change_policy(state, policy, placement)
        case TermBegun(term=term, lacks=lacks):
            state.term = term
            state.suspend = event.suspend
            if lacks is not None and lacks != state.lacks:
                plan_without(state, lacks)


def _submit(state: State, job: Job) -> None:
    gang, shape = state.gangs.learn(job.gang), shape_of(job, state.tells_apart)
    record = JobRecord(job, state.now, len(state.jobs), job, gang.gpus_min, shape, gang.tasks, gang.need)
    state.jobs[job.id] = record
    state.know_queue(job.queue)
    if job.scale is not None:
        state.scaled[job.id] = None
    for dependency in job.after:
        state.dependents.setdefault(dependency.job, {})[job.id] = None
    if job.begin_ms is not None and job.begin_ms > state.now:
        state.set_timer(job.begin_ms, "line_up", job.id)
    if job.max_wait_ms is not None:
        holding.limit_waits(state)
        state.set_timer(max(state.now, job.begin_ms or 0) + job.max_wait_ms, "max_wait", job.id)
    patience.expect(state, record)
    enqueue.enqueue(state, record)


def _hold(state: State, record: JobRecord, held: bool) -> None:
    record.held = held
    if record.attempt is None:
        enqueue.enqueue(state, record)


def _requeue(state: State, record: JobRecord) -> None:
    assert record.attempt is not None, f"{record.job.id} has started"
    ending.want_stopped(state, record.attempt, StopReason.REQUEUED)


def _action_of(state: State, action: ActionId) -> tuple[AttemptRecord | None, object]:
    """The attempt and the action an answer is about; None if it is late news."""
    cut = state.cuts.pop(action, None) if state.cuts else None
    if cut is not None:
        attempts.cut_answered(state, cut)
    attempt = state.attempt(action.job, action.attempt)
    if attempt is None:
        return None, None
    return attempt, attempt.in_flight.pop(action.seq, None)


def _done(state: State, action: ActionId) -> None:
    cut = state.cuts.get(action) if state.cuts else None
    if cut is not None:
        state.capacity.set_layout(state.topology.number[cut.node], cut.device, cut.layout)
    attempt, asked = _action_of(state, action)
    if attempt is None:
        return
    match asked:
        case Start():
            attempts.started(state, attempt)
        case Stop():
            ending.end(state, attempt)
        case Suspend() if attempt.phase is Phase.SUSPENDING:
            attempts.change_phase(state, attempt, Phase.SUSPENDED)
        case Suspend() if attempt.keeping is not None:
            ending.suspended(state, attempt)
        case Resume() if attempt.phase is Phase.RESUMING:
            attempts.change_phase(state, attempt, Phase.RUNNING)
        case Resume(placement=placement) if placement is not None:
            attempts.started(state, attempt)
        case Resize(placement=placement) if attempt.phase is Phase.RESIZING:
            attempts.resized(state, attempt, placement)


def _failed(state: State, action: ActionId, reason: str, retryable: bool) -> None:
    attempt, asked = _action_of(state, action)
    if attempt is None:
        return
    match asked:
        case Start() | Repartition():
            ending.start_failed(state, attempt, reason, retryable)
        case Resume(placement=placement) if placement is not None:
            ending.start_failed(state, attempt, reason, retryable=True)
        case Stop():
            ending.stop_failed(state, attempt)
        case Suspend() if attempt.phase is Phase.SUSPENDING:
            attempts.phase_failed(state, attempt, Phase.RUNNING)
        case Suspend() if attempt.keeping is not None:
            attempts.suspend_failed(state, attempt)
        case Resume() if attempt.phase is Phase.RESUMING:
            attempts.phase_failed(state, attempt, Phase.SUSPENDED)
        case Resize() if attempt.phase is Phase.RESIZING:
            attempts.resize_failed(state, attempt)


def _lost(state: State, action: ActionId) -> None:
    attempt, asked = _action_of(state, action)
    if attempt is None:
        return
    match asked:
        case Stop():
            ending.stop_failed(state, attempt)
        case Suspend() if attempt.keeping is not None:
            attempts.suspend_failed(state, attempt)
        case None:
            pass
        case _:
            ending.want_stopped(state, attempt, StopReason.LOST)


def _node_health(state: State, node: int, health: Health) -> None:
    name = state.topology.nodes[node].name
    if name in state.closed and health is not Health.FAILED:
        state.closed[name] = health
        return
    if state.capacity.health[node] is Health.SPARE and health is Health.HEALTHY:
        return
    state.capacity.set_health(node, health)
    state.reservations_stale = True
    if health is not Health.HEALTHY:
        _return_claims(state, node, -1)
        for job in [job for job in state.kept if _keeps_on(state, job, node)]:
            ending.discard(state, state.jobs[job], StopReason.HARDWARE)
    if health is Health.FAILED:
        for attempt in list(state.on_node.get(node, {}).values()):
            _lose_hardware(state, attempt)


def _keeps_on(state: State, job: str, node: int) -> bool:
    """Whether a suspended job is pending for a node that takes no work any more: it starts elsewhere instead."""
    record = state.jobs[job]
    return record.attempt is None and record.kept is not None and record.kept.booking.node == node


def _return_claims(state: State, node: int, devices: int) -> None:
    """Jobs with a claim on hardware that takes no new work any more are pending again."""
    for attempt in list(state.on_node.get(node, {}).values()):
        if attempt.phase is Phase.CLAIMED and any(
            booking.node == node and (devices == -1 or booking.devices & devices) for booking in attempt.bookings
        ):
            ending.want_stopped(state, attempt, StopReason.HARDWARE)


def _device_health(state: State, node: int, device: int, health: Health) -> None:
    state.capacity.set_device_health(node, device, health)
    state.reservations_stale = True
    if health is not Health.HEALTHY:
        _return_claims(state, node, 1 << device)
    if health is Health.FAILED:
        for attempt in list(state.on_node.get(node, {}).values()):
            if any(booking.node == node and booking.devices >> device & 1 for booking in attempt.bookings):
                _lose_hardware(state, attempt)


def _lose_hardware(state: State, attempt: AttemptRecord) -> None:
    """Has an attempt stopped that has lost hardware; a service that can go on with the rest gives up those members."""
    if attempt.key not in state.elastic or not does_without(attempt, lost(attempt, state.capacity)):
        ending.want_stopped(state, attempt, StopReason.HARDWARE)


def _progress(state: State, progress: Progress) -> None:
    attempt = state.attempt(progress.job, progress.attempt)
    if attempt is None:
        return
    attempt.stop_cost_ms = progress.stop_cost_ms
    if progress.durable_step > attempt.durable_step:
        attempt.save(progress.durable_step, _done_by(attempt, progress, state.now))
        state.saving[attempt.key] = attempt
    sweeps.compete(state, attempt, progress)


def _done_by(attempt: AttemptRecord, progress: Progress, now: int) -> int:
    """When a job had done the step that is durable by now, as it goes on evenly since the last that was.

    Whence an attempt after the first went on is not known before its first durable step.
    """
    done = progress.step - attempt.durable_step
    if done <= 0 or progress.step < progress.durable_step or (attempt.number > 1 and not attempt.durable_step):
        return now
    since_ms = now - attempt.durable_ms
    return attempt.durable_ms + since_ms * (progress.durable_step - attempt.durable_step) // done


def _fire_timers(state: State) -> None:
    while state.timers and state.timers[0].at_ms <= state.now:
        _fire(state, heappop(state.timers))
    patience.look(state)


def _fire(state: State, timer: Timer) -> None:
    if timer.kind == "maintenance":
        maintenance.keep(state, timer.at_ms)
        return
    if timer.kind == "defragment":
        state.defragments_at_ms, state.defragmented_ms = 0, state.now
        return
    if timer.kind == "patience":
        if not patience.is_moot(state, timer.job, timer.at_ms):
            del state.patience_timers[timer.job]
            state.look_for_first(timer.job, timer.at_ms - state.patience_ms(timer.job))
        return
    record = state.jobs[timer.job]
    attempt = state.attempt(timer.job, timer.attempt)
    match timer.kind:
        case "line_up":
            if record.final is None and record.attempt is None:
                enqueue.enqueue(state, record)
        case "action":
            action = _asked(state, timer)
            if action is not None:
                _lost(state, action)
        case "stop_again":
            if attempt is not None and attempt.stop_reason is not None:
                state.to_stop.setdefault(attempt.key, attempt.stop_reason)
        case "max_run":
            if attempt is not None and _has_run_out(attempt, state.now):
                ending.want_stopped(state, attempt, StopReason.MAX_RUN)
        case "max_wait":
            if record.final is None and record.first_start_ms is None:
                record.overdue = True
                enqueue.rekey(state, record)
        case "min_run":
            if attempt is not None:
                holding.may_give_way(state, attempt)
        case "change":
            if _change_is_due(record, timer):
                state.policy.due(record, state)
                enqueue.rekey(state, record)


def _has_run_out(attempt: AttemptRecord, now: int) -> bool:
    """Whether an attempt has run for as long as it may; the time in which it was suspended does not count."""
    return attempt.job.max_run_ms is not None and attempt.ran_ms(now) >= attempt.job.max_run_ms


def _asked(state: State, timer: Timer) -> ActionId | None:
    """The action that a timer is about, by whichever leader asked for it; None if it has been answered."""
    for cut in state.cuts:
        if cut[1:] == (timer.job, timer.attempt, timer.seq):
            return cut
    attempt = state.attempt(timer.job, timer.attempt)
    action = attempt.in_flight.get(timer.seq) if attempt is not None else None
    return action.id if action is not None else None


def _change_is_due(record: JobRecord, timer: Timer) -> bool:
    """Whether a job's place was to change at this moment, and nothing has happened to it since that changed it."""
    return record.final is None and record.change_ms == timer.at_ms and record.attempts == timer.attempt


def _drop_moot_timers(state: State) -> None:
    """Drops timers about what is over, as far as they come first: no wake-up is needed for them."""
    timers = state.timers
    while timers and _is_moot(state, timers[0]):
        heappop(timers)


def _is_moot(state: State, timer: Timer) -> bool:
    match timer.kind:
        case "action":
            attempt = state.jobs[timer.job].attempt
            is_asked = attempt is not None and attempt.number == timer.attempt and timer.seq in attempt.in_flight
            return not is_asked and (not state.cuts or _asked(state, timer) is None)
        case "line_up":
            record = state.jobs[timer.job]
            return record.final is not None or record.attempt is not None or record.parked is None
        case "max_wait":
            record = state.jobs[timer.job]
            return record.final is not None or record.first_start_ms is not None
        case "patience":
            return patience.is_moot(state, timer.job, timer.at_ms)
        case "change":
            return not _change_is_due(state.jobs[timer.job], timer)
        case "maintenance":
            return not maintenance.is_edge(state, timer.at_ms)
        case "defragment":
            return timer.at_ms != state.defragments_at_ms
        case _:
            return state.attempt(timer.job, timer.attempt) is None


def _decision(state: State, plan: Plan) -> None:
    if state.cells is not None:
        state.cells.fold(plan.cells, state.jobs)
    state.head = plan.head
    state.reservations_stale = False
    state.defragmented_ms = -1
    if plan.reservations is not None:
        state.reservations = plan.reservations
    for key in plan.withdrawn:
        ending.withdraw(state, key)
    for action in plan.actions:
        if isinstance(action, FREEING):
            attempts.send(state, action)
    for claim in plan.claims:
        attempts.open_attempt(state, claim)
    for action in plan.actions:
        if not isinstance(action, FREEING):
            attempts.send(state, action)
    for verdict in plan.verdicts:
        patience.note_verdict(state, verdict)
        state.classes[state.jobs[verdict.job].shape].verdict = verdict.reason
    if plan.exhaustive or state.policy.lets_none_pass:
        # Whatever the plan itself gives back was looked at while it was made.
        state.clean_seq = state.seq
        state.capacity.grown = 0
    expect_defragmentation(state)
