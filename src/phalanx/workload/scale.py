"""Scales: by what load a service is to have how many replicas."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Metric(StrEnum):
    """What the load of a service is measured by."""

    REQUESTS_PER_S = "requests_per_s"
    GPU_BUSY = "gpu_busy"
    QUEUE_LENGTH = "queue_length"
    QUERY = "query"

    @property
    def is_mean(self) -> bool:
        """Whether it is a mean over all replicas, which more replicas lower, and not a sum over them."""
        return self is Metric.GPU_BUSY


COOL_DOWN_MS = 300_000


@dataclass(frozen=True, slots=True)
class Scale:
    """How a service follows its load: `target` is what each replica is to have of it, `least` and `most` bound the
    replicas. It shrinks no sooner than `cool_down_ms` after its size last changed. `query` is what Prometheus is asked
    where the metric is a query.

    `replicas` and `since_ms` are decided by the server: the size from that moment on; None before the first change.
    """

    metric: Metric
    target: float
    least: int
    most: int
    cool_down_ms: int = COOL_DOWN_MS
    query: str = ""
    replicas: int | None = None
    since_ms: int = 0

    @property
    def is_at_zero(self) -> bool:
        """Whether the service is to have no replica now."""
        return self.replicas == 0
