"""The native job file."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from decimal import Decimal

from phalanx.cluster.mig import GEOMETRIES
from phalanx.document import Field, Fields, read_document
from phalanx.document.field import is_name, nearest
from phalanx.document.units import ceiling
from phalanx.workload.array import ArrayError, parse_indices
from phalanx.workload.batch import VARIABLE
from phalanx.workload.formats.batch import BATCH_KEYS, read_batch
from phalanx.workload.formats.execution import EXECUTION_KEYS, HEALTH_KEYS, MOUNT_KEYS, read_execution
from phalanx.workload.formats.gang import (
    AMOUNT_KEYS,
    REPLICAS_KEYS,
    ROLE_KEYS,
    TASK_KEYS,
    TOPOLOGY_KEYS,
    TaskReader,
)
from phalanx.workload.formats.limits import (
    DEPENDENCIES_MAX,
    JOB_LIMITS,
    PARALLEL_MAX,
    PARAMS_BILLIONS_MAX,
    RETRIES_MAX,
    SIZE_MAX,
)
from phalanx.workload.formats.nodes import TOLERATION_KEYS, read_labels, read_preferences, read_tolerations
from phalanx.workload.formats.scale import METRIC_KEYS, SCALE_KEYS, read_scale, within_scale
from phalanx.workload.formats.sweep import HALVING_KEYS, RANGE_KEYS, SWEEP_KEYS, check_placeholders, read_sweep
from phalanx.workload.gang import Gang
from phalanx.workload.job import (
    DEFAULT_GRACE_MS,
    DEFAULT_QUEUE,
    GRACE_MAX_MS,
    PRIORITY_MAX,
    PRIORITY_MIN,
    After,
    Array,
    Checkpointing,
    Dependency,
    Job,
    Kind,
)
from phalanx.workload.parallel import ParallelPlan, Traffic
from phalanx.workload.share import (
    PERCENT_MAX,
    PERMILLE_MAX,
    TURNS_MAX,
    TURNS_MIN,
    ShareAsk,
    fraction_ask,
    mig_ask,
    mps_ask,
    turn_ask,
)
from phalanx.workload.sizes import of_whole_replicas, whole_steps
from phalanx.workload.sweep import Sweep

JOB_KEYS = (
    "version",
    "name",
    "kind",
    "queue",
    "user",
    "priority",
    *EXECUTION_KEYS,
    "labels",
    "node_selector",
    "prefer",
    "tolerations",
    "gang",
    *TASK_KEYS,
    "share",
    "parallel",
    "topology",
    "duration",
    "max_run",
    "max_wait",
    "begin",
    "deadline",
    "grace",
    "after",
    "array",
    "sweep",
    "preemptible",
    "movable",
    "min_available",
    "scale",
    "batch",
    "checkpoint",
    "retry",
)
SHARE_KINDS = ("fraction", "mig", "mps", "turns")
SHARE_KEYS = (*SHARE_KINDS, "memory_gb")
TRAFFIC_COUNTS = ("hidden_dim", "seq_len", "micro_batch_size", "dtype_bytes", "layers", "micro_batches")
TRAFFIC_KEYS = (*TRAFFIC_COUNTS, "params_billions")
MESH_KEYS = ("tp", "pp", "dp")
PARALLEL_KEYS = (*MESH_KEYS, *TRAFFIC_KEYS)
AFTER_KEYS = ("job", "on", "otherwise")
OTHERWISE = ("cancel", "keep")
CHECKPOINT_KEYS = ("interval", "cost")
RETRY_KEYS = ("limit",)

KEYS = {
    "The file": JOB_KEYS,
    "gang": ROLE_KEYS,
    "replicas": REPLICAS_KEYS,
    "cpus and memory_gb": AMOUNT_KEYS,
    "share": SHARE_KEYS,
    "parallel": PARALLEL_KEYS,
    "topology": TOPOLOGY_KEYS,
    "tolerations": TOLERATION_KEYS,
    "mounts": MOUNT_KEYS,
    "health": HEALTH_KEYS,
    "after": AFTER_KEYS,
    "sweep": SWEEP_KEYS,
    "sweep.parameters": RANGE_KEYS,
    "sweep.halving": HALVING_KEYS,
    "scale": SCALE_KEYS,
    "scale.metric": METRIC_KEYS,
    "batch": BATCH_KEYS,
    "checkpoint": CHECKPOINT_KEYS,
    "retry": RETRY_KEYS,
}
"""Every key of a job file, by the part of the file it belongs to."""


def read_job(
    text: str,
    source: str,
    job_id: str = "",
    now_ms: int = 0,
    gpu_types: Collection[str] | None = None,
    levels: Collection[str] = (),
    tiers: Collection[str] | None = None,
) -> Job:
    """Reads a job file. `source` names it in errors; nothing is opened.

    `now_ms` is the moment from which `+2h` counts, `gpu_types` names GPU types beyond those of the catalogue, `levels`
    and storage `tiers` are those of the cluster, where it is known.
    """
    fields = read_document(text, source, JOB_LIMITS).mapping(JOB_KEYS)
    fields.get("version", lambda version: version.integer(1, 1), 1)
    if fields.given(("command", "image", "gang", *TASK_KEYS)) is None:
        raise fields.place.error("expected at least one of the keys command, gang or gpus")
    share = fields.get("share", _read_share, None)
    gang = TaskReader(share, gpu_types or (), levels, tiers).gang(fields)
    if share is not None and not gang.gpus_max:
        raise fields["share"].error("no task asks for a GPU to share, give gpus: 1")
    kind = Kind(fields.get("kind", lambda kind: kind.choice(tuple(Kind)), Kind.TRAINING))
    scale = read_scale(fields, kind, gang)
    min_available = scale.least if scale is not None else _read_min_available(fields, kind, gang)
    if scale is not None:
        gang = within_scale(gang, scale)
    elif kind is Kind.SERVICE:
        gang = _of_replicas(gang, min_available)
    begin_ms, deadline_ms = _read_window(fields, now_ms)
    sweep, array = _read_members(fields)
    execution = read_execution(fields)
    if sweep is not None and execution.command:
        check_placeholders(sweep, fields["command"], execution.command)
    plan = fields.get("parallel", lambda parallel: _read_plan(parallel, gang), None)
    gang = of_whole_replicas(gang, plan)
    batch = read_batch(fields, kind, gang, plan)
    if batch is not None:
        # Ranks act on it; the scheduler does not.
        execution = replace(execution, env=(*execution.env, (VARIABLE, batch.text())))
    return Job(
        id=job_id,
        gang=gang,
        name=fields.get("name", Field.title, ""),
        kind=kind,
        queue=fields.get("queue", _read_queue, DEFAULT_QUEUE),
        user=fields.get("user", Field.title, ""),
        priority=fields.get("priority", lambda priority: priority.integer(PRIORITY_MIN, PRIORITY_MAX), 0),
        parallel=plan,
        traffic=fields.get("parallel", _read_traffic, None),
        node_selector=fields.get("node_selector", read_labels, ()),
        tolerations=fields.get("tolerations", read_tolerations, ()),
        duration_ms=fields.get("duration", Field.duration_ms, None),
        max_run_ms=fields.get("max_run", _read_positive_duration, None),
        max_wait_ms=fields.get("max_wait", _read_positive_duration, None),
        begin_ms=begin_ms,
        deadline_ms=deadline_ms,
        grace_ms=fields.get("grace", _read_grace, DEFAULT_GRACE_MS),
        after=fields.get("after", lambda after: _read_after(after, job_id), ()),
        array=array,
        preemptible=fields.get("preemptible", Field.boolean, kind is not Kind.INTERACTIVE),
        min_available=min_available,
        checkpoint=fields.get("checkpoint", _read_checkpoint, Checkpointing()),
        retry_limit=fields.get("retry", _read_retry, 0),
        labels=fields.get("labels", read_labels, ()),
        preferences=fields.get("prefer", read_preferences, ()),
        execution=execution,
        sweep=sweep,
        movable=fields.get("movable", Field.boolean, True),
        scale=scale,
    )


def place_of_after(text: str, source: str, names: Collection[str]) -> Field:
    """Where a job file that was read before names a job it waits for, by one of its names; else all that it names."""
    after = read_document(text, source, JOB_LIMITS).mapping(JOB_KEYS)["after"]
    for item in after.items(0, DEPENDENCIES_MAX):
        if _read_dependency(item).job in names:
            return item
    return after


def _read_queue(field: Field) -> str:
    text = field.title()
    if not all(is_name(part) for part in text.split("/")):
        raise field.expected("a queue as names with '/' between, such as research/llm")
    return text


def _read_share(field: Field) -> ShareAsk:
    fields = field.mapping(SHARE_KEYS)
    kinds = [kind for kind in SHARE_KINDS if kind in fields]
    if len(kinds) != 1:
        raise field.error(f"expected exactly one of {', '.join(SHARE_KINDS)}, got {' and '.join(kinds) or 'none'}")
    if kinds[0] in ("mig", "turns"):
        fields.refuse(("memory_gb",), f"'{kinds[0]}' already says how much memory, leave it out")
    memory_mb = fields.get("memory_gb", _read_positive_memory, None)
    return _read_share_of(kinds[0], fields[kinds[0]], memory_mb)


def _read_share_of(kind: str, field: Field, memory_mb: int | None) -> ShareAsk:
    match kind:
        case "fraction":
            part = field.decimal(Decimal(1) / PERMILLE_MAX, 1)
            return fraction_ask(ceiling(part * PERMILLE_MAX), memory_mb)
        case "mps":
            return mps_ask(field.integer(1, PERCENT_MAX), memory_mb)
        case "turns":
            return turn_ask(field.integer(TURNS_MIN, TURNS_MAX))
        case _:
            return _read_mig(field)


def _read_mig(field: Field) -> ShareAsk:
    try:
        ask = mig_ask(field.title())
    except ValueError:
        raise field.expected("the name of a MIG profile such as 1g.10gb or 1g.10gb+me") from None
    known = dict.fromkeys(profile.name for geometry in GEOMETRIES.values() for profile in geometry.profiles)
    if ask.profile not in known:
        raise field.error(f"no GPU type has the MIG profile '{ask.profile}', {nearest(field.title(), known)}")
    return ask


def _read_positive_memory(field: Field) -> int:
    memory_mb = field.memory_mb()
    if not memory_mb:
        raise field.expected("a size above 0")
    return memory_mb


def _read_plan(field: Field, gang: Gang) -> ParallelPlan:
    fields = field.mapping(PARALLEL_KEYS)
    tp, pp, dp = (fields.get(key, lambda size: size.integer(1, PARALLEL_MAX), 1) for key in MESH_KEYS)
    plan = ParallelPlan(tp, pp, dp)
    if not gang.gpus_min <= plan.world_size <= gang.gpus_max:
        has = " + ".join(f"{role.replicas_max} × {role.gpus_each_max}" for role in gang.roles)
        least = f" and at least {gang.gpus_min}" if gang.elastic else ""
        raise field.error(
            f"tp {tp} × pp {pp} × dp {dp} = {plan.world_size} GPUs, but the gang has {has} = {gang.gpus_max}{least}"
        )
    if not whole_steps(gang.roles, plan):
        raise field.error(
            f"no size of the gang from {gang.gpus_min} to {gang.gpus_max} GPUs is a multiple of tp {tp} × pp {pp} = "
            f"{tp * pp}, give replicas that hold whole replicas of the model"
        )
    return plan


def _read_traffic(field: Field) -> Traffic | None:
    fields = field.mapping(PARALLEL_KEYS)
    if fields.given(TRAFFIC_KEYS) is None:
        return None
    default = Traffic()
    counts = {
        key: fields.get(key, lambda size: size.integer(1, SIZE_MAX), getattr(default, key)) for key in TRAFFIC_COUNTS
    }
    params = fields.get(
        "params_billions", lambda size: size.number(0, PARAMS_BILLIONS_MAX), default.num_params_billions
    )
    return Traffic(num_params_billions=params, **counts)


def _read_positive_duration(field: Field) -> int:
    duration_ms = field.duration_ms()
    if not duration_ms:
        raise field.expected("a duration above 0")
    return duration_ms


def _read_grace(field: Field) -> int:
    """Bounded: what is asked to end must end, also where it does not want to."""
    grace_ms = field.duration_ms()
    if grace_ms > GRACE_MAX_MS:
        raise field.expected(f"at most {GRACE_MAX_MS // 3_600_000}h")
    return grace_ms


def _read_window(fields: Fields, now_ms: int) -> tuple[int | None, int | None]:
    begin_ms = fields.get("begin", lambda begin: begin.time_ms(now_ms), None)
    deadline_ms = fields.get("deadline", lambda deadline: deadline.time_ms(now_ms), None)
    if begin_ms is not None and deadline_ms is not None and deadline_ms <= begin_ms:
        raise fields["deadline"].expected(f"a time after 'begin', which is {fields['begin'].shown}")
    return begin_ms, deadline_ms


def _read_after(field: Field, job_id: str) -> tuple[Dependency, ...]:
    dependencies: dict[Dependency, None] = {}
    for item in field.items(0, DEPENDENCIES_MAX):
        dependency = _read_dependency(item)
        if job_id and dependency.job == job_id:
            raise item.error(f"the job {job_id} cannot wait for itself")
        dependencies[dependency] = None
    return tuple(dependencies)


def _read_dependency(field: Field) -> Dependency:
    if not field.is_mapping:
        return Dependency(field.title())
    fields = field.mapping(AFTER_KEYS)
    on = fields.get("on", lambda on: on.choice(tuple(After)), After.SUCCESS)
    otherwise = fields.get("otherwise", lambda otherwise: otherwise.choice(OTHERWISE), "cancel")
    return Dependency(fields.need("job", Field.title), After(on), keep=otherwise == "keep")


def _read_members(fields: Fields) -> tuple[Sweep | None, Array | None]:
    """The members of a job that is a sweep or an array."""
    if "sweep" not in fields:
        return None, fields.get("array", _read_array, None)
    fields.refuse(("array",), "a sweep makes its own members, leave it out")
    return read_sweep(fields["sweep"])


def _read_array(field: Field) -> Array:
    try:
        return parse_indices(field.title())
    except ArrayError as error:
        raise field.error(str(error)) from None


def _read_min_available(fields: Fields, kind: Kind, gang: Gang) -> int:
    """A service that does not say otherwise keeps the least replicas it can start with."""
    if kind is not Kind.SERVICE:
        fields.refuse(("min_available",), f"only a service has it, and this is a {kind} job")
        return 0
    replicas = sum(role.replicas_max for role in gang.roles)
    least = sum(role.replicas_min for role in gang.roles)
    return fields.get("min_available", lambda count: count.integer(0, replicas), least)


def _of_replicas(gang: Gang, min_available: int) -> Gang:
    """The gang of a service, of which each replica counts by itself: it runs with as few as are never taken away."""
    if len(gang.roles) != 1 or gang.roles[0].members:
        return gang
    role = gang.roles[0]
    return replace(gang, roles=(replace(role, replicas_min=min(role.replicas_min, max(min_available, 1))),))


def _read_checkpoint(field: Field) -> Checkpointing:
    fields = field.mapping(CHECKPOINT_KEYS)
    return Checkpointing(
        fields.get("interval", _read_interval, 0), fields.get("cost", Field.duration_ms, 0), saves=True
    )


def _read_interval(field: Field) -> int:
    return 0 if field.is_word("auto") else _read_positive_duration(field)


def _read_retry(field: Field) -> int:
    return field.mapping(RETRY_KEYS).get("limit", lambda limit: limit.integer(0, RETRIES_MAX), 0)
