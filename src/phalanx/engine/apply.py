"""`apply`: folds one record into the State. What a record may not say is refused before anything changes."""

from __future__ import annotations

from heapq import heappop
from math import isfinite

from phalanx.cluster.cluster import Cluster, Health
from phalanx.cluster.queues import RESOURCES, settled
from phalanx.engine import attempts, cells_check, defragment, maintenance, reconfigure, sweeps, waiting
from phalanx.engine.action import ActionId, Repartition, Resize, Resume, Start, Stop, Suspend
from phalanx.engine.amend import amend, may_be_resized
from phalanx.engine.event import (
    Accepted,
    Advice,
    AttemptEnded,
    ClusterChanged,
    ClusterDefined,
    DeviceHealthChanged,
    Done,
    Event,
    Failed,
    JobCancelled,
    JobChanged,
    JobHeld,
    JobReleased,
    JobSubmitted,
    Lost,
    NodeHealthChanged,
    PolicyChanged,
    Progress,
    TermBegun,
    TimerDue,
)
from phalanx.engine.journal import Record
from phalanx.engine.lacks import plan_without
from phalanx.engine.plan import Claim, Plan
from phalanx.engine.quotas import said
from phalanx.engine.records import AttemptRecord, JobRecord, Phase, StopReason, gpus_needed, need_of, shape_of, tasks_of
from phalanx.engine.spending import Spending
from phalanx.engine.state import State, Timer
from phalanx.placement.packings import packing as packing_named
from phalanx.policy.policy import never, no_wakeup
from phalanx.policy.registry import policy as policy_named
from phalanx.workload.gang import Role, Topology
from phalanx.workload.job import Job


def apply(state: State, record: Record, line: bytes) -> None:
    """Folds a record, written as `line`, in. Raises ValueError, and changes nothing, if it contradicts the State."""
    if record.seq != state.seq + 1:
        raise ValueError(f"record {record.seq} does not follow record {state.seq}")
    if record.now < state.now:
        raise ValueError(f"record {record.seq} is of {record.now} ms, before {state.now} ms: time never goes back")
    body = record.body
    if isinstance(body, Plan):
        check_plan(state, body)
    else:
        check(state, body)
    wakes = not isinstance(body, Plan) and _policy_wakes(state, record.now)
    state.seq = record.seq
    state.now = record.now
    state.digest.add(line)
    if isinstance(body, Plan):
        _decision(state, body)
    else:
        _fire_timers(state)
        _event(state, body)
        reconfigure.retire(state)
        if state.cells is not None:
            state.cells.follow(state.capacity)
        _drop_moot_timers(state)
        state.policy.observe(state.memory, body, record.now)
        if isinstance(body, Advice) or wakes:
            waiting.rekey_all(state)


def _policy_wakes(state: State, now: int) -> bool:
    """Whether the moment has come at which everybody's key changes. With an adviser, it comes with the advice."""
    policy = state.policy
    if policy.next_wakeup is no_wakeup or policy.adviser:
        return False
    due_ms = policy.next_wakeup(state.memory, state.now)
    return due_ms is not None and due_ms <= now


def check(state: State, event: Event) -> None:
    """Raises ValueError if an event contradicts the State. News of attempts that are gone are no contradiction."""
    if state.seq < 0 and not isinstance(event, ClusterDefined):
        raise ValueError("the first record must define the cluster")
    match event:
        case ClusterDefined(cluster=cluster, policy=policy, placement=placement):
            if state.seq >= 0:
                raise ValueError("a cluster is defined once, by the first record")
            _check_cluster(cluster)
            policy_named(policy)
            packing_named(placement)
        case ClusterChanged(cluster=cluster):
            _check_cluster(cluster)
            reconfigure.check_cluster(state, cluster)
        case PolicyChanged(policy=policy, placement=placement):
            policy_named(policy)
            packing_named(placement or "topology")
        case TermBegun(term=term):
            if term <= state.term:
                raise ValueError(f"term {term} does not come after term {state.term}")
        case JobSubmitted(job=job):
            _check_job(state, job)
        case JobChanged(job=job):
            record = state.record(job.id)
            attempt = record.attempt
            if record.final is not None or (
                attempt is not None and not may_be_resized(state, attempt, record.job, job)
            ):
                raise ValueError(
                    f"job {job.id} is {record.state.value}: only a waiting job can be changed; of an elastic one that "
                    "runs, how many members its roles may have, of which it needs no more than it has"
                )
            _check_request(state, job)
        case JobCancelled(job=name) | JobHeld(job=name) | JobReleased(job=name):
            record = state.record(name)
            if record.final is not None:
                raise ValueError(f"job {name} has already {record.final.value}")
        case NodeHealthChanged(node=node):
            _check_node(state, node)
        case DeviceHealthChanged(node=node, device=device):
            gpus = state.topology.nodes[_check_node(state, node)].gpus
            if not 0 <= device < gpus:
                raise ValueError(f"node {node} has devices 0 to {gpus - 1}, not {device}")
        case Progress(job=name, metrics=metrics):
            measured = (event.samples_per_s, event.gpu_busy, event.memory_gb, *metrics.values())
            if not all(map(isfinite, measured)):
                raise ValueError(f"progress of job {name}: expected finite numbers")
        case Advice(policy=policy, body=advice):
            if not all(map(isfinite, advice.values())):
                raise ValueError(f"advice of policy {policy}: expected finite numbers")


def _check_cluster(cluster: Cluster) -> None:
    names = [node.name for node in cluster.nodes]
    if len(dict.fromkeys(names)) < len(names):
        raise ValueError("two nodes of the cluster have one name")
    settled(cluster.queues, cluster.total)
    if cluster.cells is not None:
        cells_check.check_cluster(cluster)
    for window in cluster.maintenance:
        window.check(dict.fromkeys(names))


def _check_node(state: State, node: str) -> int:
    if node not in state.topology.number:
        raise ValueError(f"there is no node {node!r}")
    return state.topology.number[node]


def _check_job(state: State, job: Job) -> None:
    if not job.id:
        raise ValueError("a job needs an id")
    if job.id in state.jobs:
        raise ValueError(f"there is a job {job.id!r} already")
    for dependency in job.after:
        if dependency.job not in state.jobs:
            raise ValueError(f"job {job.id} waits for job {dependency.job!r}, which does not exist")
    _check_request(state, job)


def _check_request(state: State, job: Job) -> None:
    """Refuses what the cluster, the queue or the backend could never give."""
    if not job.gang.roles:
        raise ValueError(f"job {job.id} has no roles")
    if state.quotas:
        _check_queue(state, job)
    if state.cells is not None:
        cells_check.check_job(state.cells, job)
    _check_topology(state, job.id, job.gang.topology)
    _check_roles(state, job.id, job.gang.roles)
    for task in tasks_of(job.gang.roles).values():
        if task.share is not None and task.share.kind.value in state.lacks:
            raise ValueError(f"job {job.id} asks for a share by {task.share.kind.value}, which the backend cannot give")
    if job.parallel is not None and not job.gang.elastic and job.parallel.world_size != job.gang.gpus_max:
        raise ValueError(
            f"job {job.id}: tp·pp·dp is {job.parallel.world_size}, but the gang has {job.gang.gpus_max} GPUs"
        )


def _check_queue(state: State, job: Job) -> None:
    account = state.quotas.accounts.get(job.queue)
    if account is None or not job.queue:
        known = ", ".join(state.quotas.leaves()[:20])
        raise ValueError(f"job {job.id} is for the queue {job.queue!r}, which there is not; there are {known}")
    if account.inside:
        inside = ", ".join(each.path for each in account.inside[:20])
        raise ValueError(f"job {job.id}: queue {job.queue} has others inside, submit to one of them: {inside}")
    for resource, amount in enumerate(need_of(job.gang.roles)):
        most = state.quotas.ceiling(job.queue, resource)
        if amount > most:
            raise ValueError(
                f"job {job.id} asks for {said(amount, resource)} {RESOURCES[resource]}, "
                f"but the queue {job.queue} can have {said(most, resource)} at most"
            )


def _check_roles(state: State, job: str, roles: tuple[Role, ...]) -> None:
    names = [role.name for role in roles]
    for role in roles:
        if names.count(role.name) > 1:
            raise ValueError(f"job {job} has two roles named {role.name!r} side by side")
        _check_role(state, job, role)


def _check_role(state: State, job: str, role: Role) -> None:
    if not 1 <= role.replicas_min <= role.replicas_max:
        raise ValueError(f"job {job}, role {role.name}: replicas {role.replicas_min} to {role.replicas_max}")
    task = role.task
    if min(task.gpus, task.cpus_milli, task.memory_mb, task.nics, *(size for _, size in task.storage_gb), 0) < 0:
        raise ValueError(f"job {job}, role {role.name}: a task asks for less than nothing")
    _check_topology(state, job, role.topology)
    _check_roles(state, job, role.members)


def _check_topology(state: State, job: str, topology: Topology) -> None:
    for level in (topology.required, topology.preferred):
        if level and not state.topology.knows(level):
            known = ", ".join(state.cluster.levels)
            raise ValueError(f"job {job} asks for the level {level!r}; this cluster has {known}")


def check_plan(state: State, plan: Plan) -> None:
    """Raises ValueError if a decision contradicts the State."""
    opened = {(claim.job, claim.attempt) for claim in plan.claims}
    for claim in plan.claims:
        record = state.record(claim.job)
        if not _in_line(record, plan) or claim.attempt != record.attempts + 1:
            raise ValueError(f"a claim for attempt {claim.attempt} of job {claim.job}, which does not wait for it")
        _check_claim(state, record, claim, takes_over=claim.waits or bool(plan.withdrawn))
    for action in plan.actions:
        job, attempt = action.id.job, action.id.attempt
        if (job, attempt) not in opened and state.attempt(job, attempt) is None:
            raise ValueError(f"an action for attempt {attempt} of job {job}, which there is not")
        if isinstance(action, Stop):
            StopReason(action.reason)
    for reservation in plan.reservations or ():
        if not _in_line(state.record(reservation.job), plan):
            raise ValueError(f"a reservation for job {reservation.job}, which is not in line")
    for verdict in plan.verdicts:
        if not _in_line(state.record(verdict.job), plan):
            raise ValueError(f"a verdict on job {verdict.job}, which is not in line")
    cells_check.check_steps(state, plan.cells)


def _in_line(record: JobRecord, plan: Plan) -> bool:
    """Whether a job waits, or will once the plan has taken its claim back."""
    return record.queued is not None or (record.attempt is not None and record.attempt.key in plan.withdrawn)


def _check_claim(state: State, record: JobRecord, claim: Claim, takes_over: bool) -> None:
    for slot in claim.placement.slots:
        node = _check_node(state, slot.node)
        free = state.capacity.all_devices[node] if takes_over else state.capacity.free[node]
        if slot.role not in record.tasks:
            raise ValueError(f"a claim for role {slot.role!r}, which job {claim.job} does not have")
        for device in slot.devices:
            if slot.portion is None and not free >> device & 1:
                raise ValueError(f"a claim of job {claim.job} on device {device} of {slot.node}, which is not free")


def _event(state: State, event: Event) -> None:
    match event:
        case JobSubmitted(job=job):
            _submit(state, job)
        case JobChanged(job=job):
            amend(state, state.jobs[job.id], job)
        case JobCancelled(job=name):
            attempts.cancel(state, state.jobs[name])
        case JobHeld(job=name):
            _hold(state, state.jobs[name], held=True)
        case JobReleased(job=name):
            _hold(state, state.jobs[name], held=False)
        case Done(action=action):
            _done(state, action)
        case Failed(action=action, reason=reason, retryable=retryable):
            _failed(state, action, reason, retryable)
        case Lost(action=action):
            _lost(state, action)
        case AttemptEnded(job=name, attempt=number, outcome=outcome, reason=reason):
            attempt = state.attempt(name, number)
            if attempt is not None and not attempt.waits:
                attempts.ended_by_itself(state, attempt, outcome, reason)
        case NodeHealthChanged(node=node, health=health):
            _node_health(state, state.topology.number[node], health)
        case DeviceHealthChanged(node=node, device=device, health=health):
            _device_health(state, state.topology.number[node], device, health)
        case Progress():
            _progress(state, event)
        case ClusterDefined(cluster=cluster, policy=policy, term=term, placement=placement, lacks=lacks):
            state.define(cluster)
            state.lacks = lacks
            state.packing = packing_named(placement)
            state.policy = policy_named(policy)
            state.spending = Spending(state.policy.half_life_ms or 0)
            for queue in state.quotas.leaves():
                state.know_queue(queue)
            state.term = term
            maintenance.set_out(state)
        case ClusterChanged(cluster=cluster):
            reconfigure.change_cluster(state, cluster)
        case PolicyChanged(policy=policy, placement=placement):
            reconfigure.change_policy(state, policy, placement)
        case TermBegun(term=term, lacks=lacks):
            state.term = term
            if lacks is not None and lacks != state.lacks:
                plan_without(state, lacks)
        case Accepted() | Advice() | TimerDue():
            pass


def _submit(state: State, job: Job) -> None:
    gang, shape = job.gang, shape_of(job, state.minds_queues)
    tasks = tasks_of(gang.roles)
    needed = gpus_needed(gang, tasks)
    record = JobRecord(job, state.now, len(state.jobs), job, needed, shape, tasks, need_of(gang.roles))
    state.jobs[job.id] = record
    state.know_queue(job.queue)
    for dependency in job.after:
        state.dependents.setdefault(dependency.job, {})[job.id] = None
    if job.begin_ms is not None and job.begin_ms > state.now:
        state.set_timer(job.begin_ms, "line_up", job.id)
    if job.max_wait_ms is not None:
        attempts.limit_waits(state)
        state.set_timer(max(state.now, job.begin_ms or 0) + job.max_wait_ms, "max_wait", job.id)
    waiting.line_up(state, record)


def _hold(state: State, record: JobRecord, held: bool) -> None:
    record.held = held
    if record.attempt is None:
        waiting.line_up(state, record)


def _action_of(state: State, action: ActionId) -> tuple[AttemptRecord | None, object]:
    """The attempt and the action an answer is about; None if it is late news."""
    cut = state.cuts.pop(action, None)
    if cut is not None:
        attempts.cut_answered(state, cut)
    attempt = state.attempt(action.job, action.attempt)
    if attempt is None:
        return None, None
    return attempt, attempt.in_flight.pop(action.seq, None)


def _done(state: State, action: ActionId) -> None:
    cut = state.cuts.get(action)
    if cut is not None:
        state.capacity.set_layout(state.topology.number[cut.node], cut.device, cut.layout)
    attempt, asked = _action_of(state, action)
    if attempt is None:
        return
    match asked:
        case Start():
            attempts.started(state, attempt)
        case Stop():
            attempts.end(state, attempt)
        case Suspend() if attempt.phase is Phase.SUSPENDING:
            attempt.phase = Phase.SUSPENDED
        case Resume() if attempt.phase is Phase.RESUMING:
            attempt.phase = Phase.RUNNING
        case Resize(placement=placement) if attempt.phase is Phase.RESIZING:
            attempts.resized(state, attempt, placement)


def _failed(state: State, action: ActionId, reason: str, retryable: bool) -> None:
    attempt, asked = _action_of(state, action)
    if attempt is None:
        return
    match asked:
        case Start() | Repartition():
            attempts.start_failed(state, attempt, reason, retryable)
        case Stop():
            attempts.stop_failed(state, attempt)
        case Suspend() if attempt.phase is Phase.SUSPENDING:
            attempt.phase = Phase.RUNNING
        case Resume() if attempt.phase is Phase.RESUMING:
            attempt.phase = Phase.SUSPENDED
        case Resize() if attempt.phase is Phase.RESIZING:
            attempts.resize_failed(state, attempt)


def _lost(state: State, action: ActionId) -> None:
    attempt, asked = _action_of(state, action)
    if attempt is None:
        return
    match asked:
        case Stop():
            attempts.stop_failed(state, attempt)
        case None:
            pass
        case _:
            attempts.want_stopped(state, attempt, StopReason.LOST)


def _node_health(state: State, node: int, health: Health) -> None:
    name = state.topology.nodes[node].name
    if name in state.closed and health is not Health.FAILED:
        state.closed[name] = health
        return
    state.capacity.set_health(node, health)
    state.surprised = True
    if health is not Health.HEALTHY:
        _return_claims(state, node, -1)
    if health is Health.FAILED:
        for attempt in list(state.on_node.get(node, {}).values()):
            attempts.want_stopped(state, attempt, StopReason.HARDWARE)


def _return_claims(state: State, node: int, devices: int) -> None:
    """Who was promised a place on hardware that takes no new work any more goes back in line."""
    for attempt in list(state.on_node.get(node, {}).values()):
        if attempt.phase is Phase.CLAIMED and any(
            booking.node == node and (devices == -1 or booking.devices & devices) for booking in attempt.bookings
        ):
            attempts.want_stopped(state, attempt, StopReason.HARDWARE)


def _device_health(state: State, node: int, device: int, health: Health) -> None:
    state.capacity.set_device_health(node, device, health)
    state.surprised = True
    if health is not Health.HEALTHY:
        _return_claims(state, node, 1 << device)
    if health is Health.FAILED:
        for attempt in list(state.on_node.get(node, {}).values()):
            if any(booking.node == node and booking.devices >> device & 1 for booking in attempt.bookings):
                attempts.want_stopped(state, attempt, StopReason.HARDWARE)


def _progress(state: State, progress: Progress) -> None:
    attempt = state.attempt(progress.job, progress.attempt)
    if attempt is None:
        return
    attempt.stop_cost_ms = progress.stop_cost_ms
    if progress.durable_step > attempt.durable_step:
        attempt.durable_step = progress.durable_step
        attempt.durable_ms = state.now
    sweeps.compete(state, attempt, progress.step, progress.metrics)


def _fire_timers(state: State) -> None:
    while state.timers and state.timers[0].at_ms <= state.now:
        _fire(state, heappop(state.timers))


def _fire(state: State, timer: Timer) -> None:
    if timer.kind == "maintenance":
        maintenance.keep(state, timer.at_ms)
        return
    if timer.kind == "defragment":
        state.defragments_at_ms, state.defragmented_ms = 0, state.now
        return
    record = state.jobs[timer.job]
    attempt = state.attempt(timer.job, timer.attempt)
    match timer.kind:
        case "line_up":
            if record.final is None and record.attempt is None:
                waiting.line_up(state, record)
        case "action":
            action = _asked(state, timer)
            if action is not None:
                _lost(state, action)
        case "stop_again":
            if attempt is not None and attempt.stop_reason is not None:
                state.to_stop.setdefault(attempt.key, attempt.stop_reason)
        case "max_run":
            if attempt is not None:
                attempts.want_stopped(state, attempt, StopReason.MAX_RUN)
        case "max_wait":
            if record.final is None and record.first_start_ms is None:
                record.overdue = True
                waiting.rekey(state, record)
        case "min_run":
            if attempt is not None:
                attempts.may_give_way(state, attempt)
        case "change":
            if _change_is_due(record, timer):
                state.policy.due(record, state)
                waiting.rekey(state, record)


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
    """Forgets timers about what is over, as far as they come first: nobody need wake for them."""
    while state.timers and _is_moot(state, state.timers[0]):
        heappop(state.timers)


def _is_moot(state: State, timer: Timer) -> bool:
    attempt = state.attempt(timer.job, timer.attempt)
    match timer.kind:
        case "line_up":
            record = state.jobs[timer.job]
            return record.final is not None or record.attempt is not None or record.parked is None
        case "max_wait":
            record = state.jobs[timer.job]
            return record.final is not None or record.first_start_ms is not None
        case "change":
            return not _change_is_due(state.jobs[timer.job], timer)
        case "maintenance":
            return not maintenance.is_edge(state, timer.at_ms)
        case "defragment":
            return timer.at_ms != state.defragments_at_ms
        case "action":
            return _asked(state, timer) is None
        case _:
            return attempt is None


def _decision(state: State, plan: Plan) -> None:
    if state.cells is not None:
        state.cells.fold(plan.cells, state.jobs)
    state.head = plan.head
    state.surprised = False
    state.defragmented_ms = -1
    if plan.reservations is not None:
        state.reservations = plan.reservations
    for key in plan.withdrawn:
        attempts.withdraw(state, key)
    for action in plan.actions:
        if isinstance(action, Stop | Resize):
            attempts.send(state, action)
    for claim in plan.claims:
        attempts.open_attempt(state, claim)
    for action in plan.actions:
        if not isinstance(action, Stop | Resize):
            attempts.send(state, action)
    for verdict in plan.verdicts:
        state.classes[state.jobs[verdict.job].shape].verdict = verdict.reason
    if plan.exhaustive or state.policy.backfill is never:
        # Whatever the plan itself gives back was looked at while it was made.
        state.clean_seq = state.seq
        state.capacity.grown = 0
    defragment.expect(state)
