"""The queues of a cluster file: a tree, written as one or by paths."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from phalanx.cluster.formats.limits import (
    BUDGET_GPU_HOURS_MAX,
    GPUS_MAX,
    QUEUE_LEVELS_MAX,
    QUEUE_PRIORITY_MAX,
    QUEUE_WEIGHT_MAX,
    QUEUES_MAX,
)
from phalanx.cluster.queues import UNSAID, Queue, Quota, QuotaConflict, settled
from phalanx.document import Field
from phalanx.document.field import is_name

QUEUE_KEYS = (
    "name",
    "guaranteed",
    "deserved",
    "limit",
    "weight",
    "priority",
    "job_priority",
    "reclaimable",
    "min_run",
    "min_run_reclaim",
    "budget_gpu_hours",
    "patience",
    "queues",
)
QUOTA_KEYS = ("gpus", "cpus", "memory_gb")
JOB_PRIORITY_KEYS = ("normal", "members", "operators")

MS_PER_HOUR = 3_600_000


def read_queues(field: Field, total: Quota) -> tuple[Queue, ...]:
    """Reads `queues`, and refuses those that are allotted more than there is."""
    found: dict[str, tuple[Field, Queue]] = {}
    for place, queue in _read_level(field, ""):
        if queue.path in found:
            first = found[queue.path][0].line
            raise place.error(f"the queue '{queue.path}' is given twice, first on line {first}")
        found[queue.path] = (place, queue)
    if len(found) > QUEUES_MAX:
        raise field.error(f"expected at most {QUEUES_MAX} queues, got {len(found)}")
    queues = tuple(queue for _, queue in found.values())
    try:
        settled(queues, total)
    except QuotaConflict as conflict:
        raise found[conflict.path][0].error(str(conflict)) from None
    return queues


def _read_level(field: Field, above: str) -> Iterator[tuple[Field, Queue]]:
    for item in field.items(1, QUEUES_MAX):
        fields = item.mapping(QUEUE_KEYS)
        path = above + fields.need("name", _read_path)
        if path.count("/") >= QUEUE_LEVELS_MAX:
            raise item.error(f"queues lie at most {QUEUE_LEVELS_MAX} deep in one another")
        normal, members, operators = fields.get("job_priority", _read_job_priority, (None, None, None))
        weight, cpu_weight, memory_weight = fields.get("weight", _read_weights, (1, None, None))
        yield (
            item,
            Queue(
                path,
                guaranteed=fields.get("guaranteed", _read_quota, UNSAID),
                deserved=fields.get("deserved", _read_quota, UNSAID),
                limit=fields.get("limit", _read_quota, UNSAID),
                weight=weight,
                priority=fields.get("priority", _read_priority, 0),
                reclaimable=fields.get("reclaimable", Field.boolean, True),
                min_run_ms=fields.get("min_run", Field.duration_ms, 0),
                min_run_reclaim_ms=fields.get("min_run_reclaim", Field.duration_ms, None),
                budget_gpu_ms=fields.get("budget_gpu_hours", _read_budget, None),
                cpu_weight=cpu_weight,
                memory_weight=memory_weight,
                patience_ms=fields.get("patience", read_patience, None),
                normal_priority=normal,
                member_priority_max=members,
                operator_priority_max=operators,
            ),
        )
        if "queues" in fields:
            yield from _read_level(fields["queues"], f"{path}/")


def read_patience(field: Field) -> int:
    """How long other jobs may pass a pending job; 0 for `never`, which is: for ever."""
    return 0 if field.is_word("never") else field.duration_ms()


def _read_path(field: Field) -> str:
    path = field.text()
    if not all(is_name(part) for part in path.split("/")):
        raise field.expected("a name, or a path of names such as research/llm")
    return path


def _read_quota(field: Field) -> Quota:
    """`{gpus: 64, cpus: 512, memory_gb: 4096}`, or only a number of GPUs."""
    if not field.is_mapping:
        return Quota(_read_gpus(field))
    fields = field.mapping(QUOTA_KEYS)
    return Quota(
        fields.get("gpus", _read_gpus, None),
        fields.get("cpus", Field.cpus_milli, None),
        fields.get("memory_gb", Field.memory_mb, None),
    )


def _read_weights(field: Field) -> tuple[int, int | None, int | None]:
    """`{gpus: 4, cpus: 1}`, where what is not named weighs 1, or one number for all."""
    if not field.is_mapping:
        return (_read_weight(field), None, None)
    fields = field.mapping(QUOTA_KEYS)
    gpus, *others = (fields.get(resource, _read_weight, 1) for resource in QUOTA_KEYS)
    cpus, memory = (None if weight == gpus else weight for weight in others)
    return (gpus, cpus, memory)


def _read_weight(field: Field) -> int:
    return field.integer(1, QUEUE_WEIGHT_MAX)


def _read_gpus(field: Field) -> int:
    return round(1000 * field.number(0, GPUS_MAX))


def _read_priority(field: Field) -> int:
    return field.integer(-QUEUE_PRIORITY_MAX, QUEUE_PRIORITY_MAX)


def _read_job_priority(field: Field) -> tuple[int | None, ...]:
    """`{normal: 0, members: 10, operators: 100}`: each at least the one before it."""
    fields = field.mapping(JOB_PRIORITY_KEYS)
    found = tuple(fields.get(key, _read_priority, None) for key in JOB_PRIORITY_KEYS)
    said = [(key, value) for key, value in zip(JOB_PRIORITY_KEYS, found, strict=True) if value is not None]
    for (lower, least), (key, value) in pairwise(said):
        if value < least:
            raise fields[key].expected(f"at least {least}, which is '{lower}'")
    return found


def _read_budget(field: Field) -> int:
    return round(MS_PER_HOUR * field.number(0, BUDGET_GPU_HOURS_MAX))
