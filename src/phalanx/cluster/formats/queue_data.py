"""Queues as a cluster file says them, in plain lists and mappings."""

from __future__ import annotations

from typing import Any

from phalanx.cluster.queues import UNITS, Queue, Quota

MS_PER_HOUR = 3_600_000
DEFAULTS = Queue("")
RESOURCE_KEYS = ("gpus", "cpus", "memory_gb")
JOB_PRIORITY_KEYS = ("normal", "members", "operators")


def queue_data(queues: tuple[Queue, ...]) -> list[dict[str, Any]]:
    """The tree, in the order of the queues; what is as if it were left out is left out."""
    found: dict[str, dict[str, Any]] = {}
    tops = []
    for queue in queues:
        data = found[queue.path] = {"name": queue.path.rpartition("/")[2], **_said(queue)}
        if queue.parent:
            found[queue.parent].setdefault("queues", []).append(data)
        else:
            tops.append(data)
    return tops


def _said(queue: Queue) -> dict[str, Any]:
    said: dict[str, Any] = {
        "guaranteed": _quota(queue.guaranteed),
        "deserved": _quota(queue.deserved),
        "limit": _quota(queue.limit),
        "weight": _weight(queue),
        "priority": queue.priority,
        "job_priority": _job_priority(queue),
        "reclaimable": queue.reclaimable,
        "min_run": _duration(queue.min_run_ms),
        "min_run_reclaim": None if queue.min_run_reclaim_ms is None else _duration(queue.min_run_reclaim_ms),
        "budget_gpu_hours": None if queue.budget_gpu_ms is None else queue.budget_gpu_ms / MS_PER_HOUR,
        "patience": None if queue.patience_ms is None else _duration(queue.patience_ms),
    }
    left_out = {
        "weight": DEFAULTS.weight,
        "priority": DEFAULTS.priority,
        "reclaimable": DEFAULTS.reclaimable,
        "min_run": "0s",
        "min_run_reclaim": None,
        "budget_gpu_hours": None,
        "patience": None,
    }
    return {key: value for key, value in said.items() if value != left_out.get(key, {})}


def _job_priority(queue: Queue) -> dict[str, int]:
    values = (queue.normal_priority, queue.member_priority_max, queue.operator_priority_max)
    return {key: value for key, value in zip(JOB_PRIORITY_KEYS, values, strict=True) if value is not None}


def _weight(queue: Queue) -> int | dict[str, int]:
    alike = len(set(queue.weights)) == 1
    return queue.weight if alike else dict(zip(RESOURCE_KEYS, queue.weights, strict=True))


def _duration(duration_ms: int) -> str:
    return f"{duration_ms}ms" if duration_ms % 1000 else f"{duration_ms // 1000}s"


def _quota(quota: Quota) -> dict[str, int | float]:
    amounts = zip(RESOURCE_KEYS, quota, UNITS, strict=True)
    return {name: _number(amount, unit) for name, amount, unit in amounts if amount is not None}


def _number(amount: int, unit: int) -> int | float:
    return amount // unit if amount % unit == 0 else amount / unit
