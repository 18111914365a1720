"""Queues of Volcano as queues of ours: their place in the tree, and what they may have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal

from phalanx.cluster.queues import UNSAID, Queue, Quota, QuotaConflict, settled
from phalanx.kube.api.quantity import BYTES_PER_MB, down, quantity
from phalanx.kube.objects.meta import Resources
from phalanx.kube.objects.queue import VolcanoQueue
from phalanx.kube.pods.demand import GPU_RESOURCES

DEFAULT, ROOT = "default", "root"
CLOSED = ("Closed", "Closing")

Queues = Mapping[str, VolcanoQueue]


def queue_path(name: str, queues: Queues) -> str:
    """The path of a queue: its name after those of the queues that it lies in. In a circle of parents there is none."""
    path, around = name, queues.get(name)
    seen = {name: None}
    while around is not None and around.spec.parent in queues and around.spec.parent != ROOT:
        parent = around.spec.parent
        if parent in seen:
            return name
        seen[parent] = None
        path, around = f"{parent}/{path}", queues.get(parent)
    return path


def queue_refusal(path: str, queues: Queues) -> str:
    """Why jobs may not be started from a queue; empty if they may. Without queues there are all that jobs name."""
    name = path.rpartition("/")[2]
    if not queues or (name == DEFAULT and name not in queues):
        return ""
    if name not in queues:
        return f"its queue {name} is not there; there are {', '.join(sorted(queues))}"
    state = queues[name].status.state
    return f"its queue {name} is {state.lower()}" if state in CLOSED else ""


def queues_of(queues: Queues, named: Iterable[str], total: Quota) -> tuple[tuple[Queue, ...], dict[str, str]]:
    """The queues of a cluster with `total`, and among them the paths that jobs have `named`; none if there are no
    objects. Beside them, by name, what of theirs cannot hold: such a queue has its weight and its limits alone.
    """
    if not queues:
        return (), {}
    found = {queue_path(name, queues): _queue(name, queues) for name in sorted(queues) if name != ROOT}
    for path in (DEFAULT, *named):
        found.setdefault(path, Queue(path))
    conflicts: dict[str, str] = {}
    while True:
        try:
            settled(tuple(found.values()), total)
        except QuotaConflict as conflict:
            conflicts[conflict.path.rpartition("/")[2]] = str(conflict)
            found = _without_quota(found, conflict.path)
        else:
            return tuple(found.values()), conflicts


def _without_quota(queues: dict[str, Queue], path: str) -> dict[str, Queue]:
    """Queues of which one is owed nothing. If it was owed nothing before, it was about the others: none is, then."""
    free = replace(queues[path], guaranteed=UNSAID, deserved=UNSAID)
    if free != queues[path]:
        return {**queues, path: free}
    return {each: replace(queue, guaranteed=UNSAID, deserved=UNSAID) for each, queue in queues.items()}


def _queue(name: str, queues: Queues) -> Queue:
    spec = queues[name].spec
    return Queue(
        queue_path(name, queues),
        guaranteed=_quota(spec.guarantee.resource if spec.guarantee is not None else None),
        deserved=_quota(spec.deserved),
        limit=_quota(spec.capability),
        weight=max(spec.weight, 1),
        priority=spec.priority,
        reclaimable=spec.reclaimable,
    )


def _quota(said: Resources | None) -> Quota:
    """GPUs of all kinds, CPUs and memory. Other resources have no quota, and what is no quantity is not said."""
    amounts = {}
    for name, amount in (said or {}).items():
        try:
            amounts[name] = quantity(amount)
        except ValueError:
            continue
    gpus = [amounts[name] for name in GPU_RESOURCES if name in amounts]
    return Quota(
        down(sum((1000 * each for each in gpus), Decimal())) if gpus else None,
        down(1000 * amounts["cpu"]) if "cpu" in amounts else None,
        down(amounts["memory"] / BYTES_PER_MB) if "memory" in amounts else None,
    )
