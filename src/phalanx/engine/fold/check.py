"""What the State refuses: events and decisions that contradict it, before anything changes."""

from __future__ import annotations

from math import inf, isfinite

from phalanx.cluster.bits import members
from phalanx.cluster.cluster import Cluster, Health
from phalanx.cluster.queues import settled, unknown_queue, with_unit
from phalanx.engine.fold import check_cells as cells_check
from phalanx.engine.fold import reconfigure
from phalanx.engine.fold.amend import may_be_resized
from phalanx.engine.fold.canary import check_canary
from phalanx.engine.quota.shortfall import said
from phalanx.engine.state.errors import NeverFitsError
from phalanx.engine.state.records import (
    AttemptRecord,
    JobRecord,
    JobState,
    Phase,
    StopReason,
    need_of,
    shape_of,
    tasks_of,
)
from phalanx.engine.state.state import State
from phalanx.engine.transaction.suspension import is_kept
from phalanx.placement.packings import packing as packing_named
from phalanx.placement.placement import Slot
from phalanx.policy.policy import Minds, Policy
from phalanx.policy.registry import policy as policy_named
from phalanx.protocol.action import Stop
from phalanx.protocol.event import (
    Advice,
    AttemptEnded,
    CanaryPlaced,
    ClusterChanged,
    ClusterDefined,
    DeviceHealthChanged,
    DevicesAssigned,
    Done,
    Event,
    ForeignUse,
    JobCancelled,
    JobChanged,
    JobHeld,
    JobReleased,
    JobRequeued,
    JobSubmitted,
    NodeHealthChanged,
    PolicyChanged,
    Progress,
    TermBegun,
)
from phalanx.protocol.plan import Claim, Plan
from phalanx.workload.gang import Role, Topology
from phalanx.workload.job import Job, Kind
from phalanx.workload.scale import Scale
from phalanx.workload.sizes import whole_steps


def check(state: State, event: Event) -> None:
    """Raises ValueError if an event contradicts the State. News of attempts that are gone are no contradiction."""
    if state.seq < 0 and not isinstance(event, ClusterDefined):
        raise ValueError("the first record must define the cluster")
    match event:
        case Done() | AttemptEnded():
            # What there is most of comes first: cases are looked at in turn.
            pass
        case JobSubmitted(job=job):
            _check_job(state, job)
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
        case JobChanged(job=job):
            record = state.record(job.id)
            attempt = record.attempt
            if record.final is not None or (
                attempt is not None and not may_be_resized(state, attempt, record.job, job)
            ):
                raise ValueError(
                    f"job {job.id} {record.state.sentence}: only a pending job can be changed. {_way(state)}"
                )
            if record.kept is not None and shape_of(job, Minds.NOTHING) != shape_of(record.job, Minds.NOTHING):
                raise ValueError(
                    f"job {job.id} is suspended, and goes on with what it asked for: cancel it and submit another"
                )
            _check_values(job)
            _check_request(state, job)
        case JobCancelled(job=name) | JobHeld(job=name) | JobReleased(job=name):
            record = state.record(name)
            if record.final is not None:
                been = " been" if record.final is JobState.CANCELLED else ""
                raise ValueError(f"job {name} has already{been} {record.final.value}")
        case JobRequeued(job=name):
            record = state.record(name)
            if record.attempt is None or record.attempt.phase is Phase.CLAIMED or record.cancelled:
                again = "submit it again; " if record.final is not None else ""
                only = "only a job that has started and is not over can be requeued"
                raise ValueError(f"job {name} {record.state.sentence}: {again}{only}")
        case NodeHealthChanged(node=node, health=health):
            _check_node(state, node)
            _check_health(health)
        case DeviceHealthChanged(node=node, device=device, health=health):
            _check_health(health)
            gpus = state.topology.nodes[_check_node(state, node)].gpus
            if not 0 <= device < gpus:
                raise ValueError(f"node {node} has devices 0 to {gpus - 1}, not {device}")
        case CanaryPlaced():
            check_canary(state, event)
        case ForeignUse():
            _check_foreign(state, event)
        case DevicesAssigned(job=name, attempt=number, slots=slots):
            attempt = state.attempt(name, number)
            if attempt is not None:
                _check_assigned(state, attempt, slots)
        case Progress(job=name, metrics=metrics):
            measured = (event.samples_per_s, event.gpu_busy, event.memory_gb)
            if not all(map(isfinite, (*measured, *metrics.values()))):
                raise ValueError(f"progress of job {name}: expected finite numbers")
            if min(measured) < 0:
                raise ValueError(f"progress of job {name}: expected numbers of at least 0, got {min(measured)!r}")
            for each in (event.step, event.durable_step, event.stop_cost_ms):
                if type(each) is not int or each < 0:
                    raise ValueError(
                        f"progress of job {name}: steps and milliseconds are whole numbers of at least 0, got {each!r}"
                    )
        case Advice(policy=policy, body=advice):
            if not all(map(isfinite, advice.values())):
                raise ValueError(f"advice of policy {policy}: expected finite numbers")


def _check_cluster(cluster: Cluster) -> None:
    names = [node.name for node in cluster.nodes]
    if len(dict.fromkeys(names)) < len(names):
        raise ValueError("two nodes of the cluster have one name")
    if len(dict.fromkeys(cluster.levels)) < len(cluster.levels):
        raise ValueError(f"two levels of the cluster have one name: {', '.join(cluster.levels)}")
    for name, times in (("cpus", cluster.overcommit.cpus), ("memory", cluster.overcommit.memory)):
        if not 1 <= times < inf:
            raise ValueError(f"overcommit of {name} must be a finite number of at least 1, got {times!r}")
    for node in cluster.nodes:
        for level, parts in node.split:
            if parts < 1 or node.gpus % parts:
                raise ValueError(
                    f"node {node.name}: {node.gpus} GPUs cannot be split into {parts} equal parts ({level})"
                )
    settled(cluster.queues, cluster.total)
    if cluster.cells is not None:
        cells_check.check_cluster(cluster)
    for window in cluster.maintenance:
        window.check(dict.fromkeys(names))


def _check_node(state: State, node: str) -> int:
    if node not in state.topology.number:
        raise ValueError(f"there is no node {node!r}")
    return state.topology.number[node]


def _check_health(health: Health) -> None:
    if health is Health.SPARE:
        raise ValueError("which nodes are spares follows from the cluster's `recovery`, and is not said of one")


def _check_foreign(state: State, event: ForeignUse) -> None:
    gpus = state.topology.nodes[_check_node(state, event.node)].gpus
    _check_devices(event.node, event.devices, gpus)
    for amount in (event.gpus, event.cpus_milli, event.memory_mb):
        if type(amount) is not int or amount < 0:
            raise ValueError(f"foreign use of node {event.node}: expected whole numbers of at least 0, got {amount!r}")


def _check_devices(node: str, devices: tuple[int, ...], gpus: int) -> None:
    for device in devices:
        if not 0 <= device < gpus:
            raise ValueError(f"node {node} has devices 0 to {gpus - 1}, not {device}")
    if len(dict.fromkeys(devices)) < len(devices):
        raise ValueError(f"node {node}: a device is named twice in {devices}")


def _check_assigned(state: State, attempt: AttemptRecord, slots: tuple[Slot, ...]) -> None:
    """The engine may choose other nodes and devices, but the tasks are those that it was asked to run."""
    asked = [(slot.rank, slot.role, len(slot.devices), slot.portion) for slot in attempt.placement.slots]
    if attempt.phase is not Phase.RESIZING and asked != [
        (slot.rank, slot.role, len(slot.devices), slot.portion) for slot in slots
    ]:
        raise ValueError(
            f"devices assigned to attempt {attempt.key}: expected a slot for each of its {len(asked)} tasks, in rank "
            "order, with as many devices as it was planned on"
        )
    given: dict[str, tuple[int, ...]] = {}
    for slot in slots:
        gpus = state.topology.nodes[_check_node(state, slot.node)].gpus
        given[slot.node] = given.get(slot.node, ()) + (slot.devices if slot.portion is None else ())
        _check_devices(slot.node, given[slot.node], gpus)


def _check_job(state: State, job: Job) -> None:
    if type(job.id) is not str or not job.id:
        raise ValueError(f"a job needs an id, which is text, got {job.id!r}")
    if job.id in state.jobs:
        raise ValueError(f"there is a job {job.id!r} already")
    _check_values(job)
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
    known = state.gangs.get(job.gang)
    if known is None:
        _check_topology(state, job.id, job.gang.topology)
        _check_roles(state, job.id, job.gang.roles)
    for task in (known.tasks if known is not None else tasks_of(job.gang.roles)).values():
        if task.share is not None and task.share.kind.value in state.lacks:
            raise ValueError(f"job {job.id} asks for a share by {task.share.kind.value}, which the backend cannot give")
    if job.scale is not None and "resize" in state.lacks:
        raise ValueError(f"job {job.id} follows its load, but the backend cannot resize what runs: leave out its scale")
    if job.parallel is not None and not job.gang.elastic and job.parallel.world_size != job.gang.gpus_max:
        raise ValueError(
            f"job {job.id}: tp·pp·dp is {job.parallel.world_size}, but the gang has {job.gang.gpus_max} GPUs"
        )
    if not whole_steps(job.gang.roles, job.parallel):
        raise ValueError(
            f"job {job.id}: no size of the gang from {job.gang.gpus_min} to {job.gang.gpus_max} GPUs is whole replicas "
            "of its parallel plan"
        )


def takes(state: State, job: Job) -> bool:
    """Whether a job that asks for the same would be taken on if it were submitted now."""
    try:
        _check_request(state, job)
    except ValueError:
        return False
    return True


def _way(state: State) -> str:
    """How a job that runs may be changed all the same."""
    if "resize" in state.lacks:
        return "The backend resizes nothing that runs: hold and requeue the job, change it, and release it"
    return "Of an elastic job that runs, the number of replicas can be changed, with a minimum of at most what it has"


def _check_values(job: Job) -> None:
    """Refuses what no reader of files lets through: jobs come from programs too."""
    saving = job.checkpoint
    for name, value in (
        ("grace_ms", job.grace_ms),
        ("duration_ms", job.duration_ms),
        ("max_run_ms", job.max_run_ms),
        ("max_wait_ms", job.max_wait_ms),
        ("begin_ms", job.begin_ms),
        ("deadline_ms", job.deadline_ms),
        ("min_available", job.min_available),
        ("retry_limit", job.retry_limit),
        ("checkpoint.interval_ms", saving.interval_ms),
        ("checkpoint.cost_ms", saving.cost_ms),
    ):
        if value is not None and (type(value) is not int or value < 0):
            raise ValueError(f"job {job.id}: {name} must be a whole number of at least 0, got {value!r}")
    if type(job.priority) is not int:
        raise ValueError(f"job {job.id}: priority must be a whole number, got {job.priority!r}")
    if type(job.kind) is not Kind:
        raise ValueError(f"job {job.id}: kind must be a Kind, got {job.kind!r}")
    for name, values in (
        ("node_selector", job.node_selector),
        ("tolerations", job.tolerations),
        ("preferences", job.preferences),
        ("after", job.after),
        ("labels", job.labels),
    ):
        # What has no hash cannot be looked up, and would be noticed only once the job is half in.
        if type(values) is not tuple:
            raise ValueError(f"job {job.id}: {name} must be a tuple, got {values!r}")
    for preference in job.preferences:
        if type(preference.weight) is not int:
            raise ValueError(f"job {job.id}: a preference has a whole number as weight, got {preference.weight!r}")
    if job.scale is not None:
        _check_scale(job, job.scale)
    queue = job.queue
    if "/" in queue and not all(queue.split("/")):
        raise ValueError(f"job {job.id}: queue must be names with '/' between, such as research/llm, got {queue!r}")


def _check_scale(job: Job, scale: Scale) -> None:
    if job.kind is not Kind.SERVICE or len(job.gang.roles) != 1 or job.gang.roles[0].members:
        raise ValueError(f"job {job.id}: only a service of one role of single tasks can follow its load")
    counts = (scale.least, scale.most, scale.cool_down_ms, scale.since_ms)
    if any(type(count) is not int for count in counts) or not 0 <= scale.least <= scale.most or scale.most < 1:
        raise ValueError(f"job {job.id}: scale has {scale.least!r} to {scale.most!r} replicas")
    if not isfinite(scale.target) or scale.target <= 0:
        raise ValueError(f"job {job.id}: the target of its scale must be a finite number above 0, got {scale.target!r}")
    if scale.replicas is not None and not scale.least <= scale.replicas <= scale.most:
        raise ValueError(
            f"job {job.id}: its scale has {scale.least} to {scale.most} replicas, and not {scale.replicas}"
        )


def check_labels(policy: Policy, job: Job) -> None:
    """Raises ValueError if a label that the policy goes by has a value that it does not know.

    Asked when a user submits a job, not of records: what journals hold from before stays true.
    """
    for label, value in job.labels:
        values = policy.labels.get(label)
        if values is not None and value not in values:
            known = ", ".join(values)
            raise ValueError(
                f"job {job.id}: label {label} is {value!r}, by which {policy.name} goes; there are {known}"
            )


def _check_queue(state: State, job: Job) -> None:
    account = state.quotas.accounts.get(job.queue)
    if account is None or not job.queue:
        raise ValueError(unknown_queue(job.queue, f"job {job.id}", state.quotas.leaves()))
    if account.inside:
        inside = ", ".join(each.path for each in account.inside[:20])
        raise ValueError(f"job {job.id}: queue {job.queue} has others inside, submit to one of them: {inside}")
    for resource, amount in enumerate(need_of(job.gang.roles)):
        most = state.quotas.upper_bound(job.queue, resource)
        if amount > most:
            bound = state.quotas.upper_bounds(job.queue, resource)[0]
            raise NeverFitsError(
                f"job {job.id} asks for {with_unit(amount, resource)}, but the queue {job.queue} can "
                f"have {said(most, resource)} at most: {bound.words(job.queue, resource)}"
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
    if task.share is not None and task.gpus != 1:
        raise ValueError(f"job {job}, role {role.name}: a share is a part of one GPU, and a task asks for {task.gpus}")
    for name, asked, limit in (
        ("cpus_limit_milli", task.cpus_milli, task.cpus_limit_milli),
        ("memory_limit_mb", task.memory_mb, task.memory_limit_mb),
    ):
        if 0 < limit < asked:
            raise ValueError(f"job {job}, role {role.name}: {name} is {limit}, less than the {asked} asked for")
    for tier, _ in task.storage_gb:
        if tier not in (tiers := state.cluster.storage_tiers):
            has = f"this cluster has {', '.join(tiers)}" if tiers else "this cluster has none"
            raise ValueError(f"job {job}, role {role.name} asks for storage of the tier {tier!r}; {has}")
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
    booked: dict[int, int] = {}
    for claim in plan.claims:
        record = state.record(claim.job)
        if not _in_line(record, plan) or claim.attempt != record.next_attempt:
            raise ValueError(
                f"a claim for attempt {claim.attempt} of job {claim.job}, which is not pending with that attempt next"
            )
        offered = state.capacity.all_devices if claim.waits or plan.withdrawn else state.capacity.free
        if record.former is not None:
            offered = _with_spares(state, offered)
        _check_claim(state, record, claim, offered, booked)
    for action in plan.actions:
        job, attempt = action.id.job, action.id.attempt
        if (job, attempt) not in opened and state.attempt(job, attempt) is None and not is_kept(state, job, attempt):
            raise ValueError(f"an action for attempt {attempt} of job {job}, which there is not")
        if isinstance(action, Stop):
            StopReason(action.reason)
    for reservation in plan.reservations or ():
        if not _in_line(state.record(reservation.job), plan):
            raise ValueError(f"a reservation for job {reservation.job}, which is not pending")
    for verdict in plan.verdicts:
        if not _in_line(state.record(verdict.job), plan):
            raise ValueError(f"a verdict on job {verdict.job}, which is not pending")
    if plan.cells:
        cells_check.check_steps(state, plan.cells)


def _with_spares(state: State, offered: list[int]) -> list[int]:
    """What nodes offer to a job that lost hardware: spares, which are idle, all that is well."""
    capacity, offered = state.capacity, list(offered)
    for node in members(capacity.with_health[Health.SPARE]):
        offered[node] = capacity.all_devices[node] & ~capacity.unhealthy[node]
    return offered


def _in_line(record: JobRecord, plan: Plan) -> bool:
    """Whether a job is pending, or will be once the plan has taken its claim back."""
    return record.queued is not None or (record.attempt is not None and record.attempt.key in plan.withdrawn)


def _check_claim(state: State, record: JobRecord, claim: Claim, offered: list[int], booked: dict[int, int]) -> None:
    """Checks a claim on the devices that nodes offer, and adds the whole ones to those `booked` by the same plan."""
    for slot in claim.placement.slots:
        node = _check_node(state, slot.node)
        if slot.role not in record.tasks:
            raise ValueError(f"a claim for role {slot.role!r}, which job {claim.job} does not have")
        if slot.portion is not None:
            continue
        taken = booked.get(node, 0)
        free = offered[node] & ~taken
        for device in slot.devices:
            bit = 1 << device
            if not free & bit:
                why = "is claimed twice" if taken & bit else "is not free"
                raise ValueError(f"a claim of job {claim.job} on device {device} of {slot.node}, which {why}")
            taken |= bit
            free ^= bit
        booked[node] = taken
