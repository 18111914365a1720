"""Queues of Volcano, and priority classes."""

from __future__ import annotations

from phalanx.kube.objects.meta import Resources, Stored, Wire


class Guarantee(Wire, frozen=True):
    """What a queue has for itself alone."""

    resource: Resources | None = None


class QueueSpec(Wire, frozen=True):
    """What a queue may have."""

    weight: int = 1
    capability: Resources | None = None
    deserved: Resources | None = None
    guarantee: Guarantee | None = None
    reclaimable: bool = True
    priority: int = 0
    parent: str = ""


class QueueStatus(Wire, frozen=True):
    """Whether a queue takes new jobs."""

    state: str = ""


class VolcanoQueue(Stored, frozen=True):
    """A queue."""

    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()


class PriorityClass(Stored, frozen=True):
    """A priority by name."""

    value: int = 0
