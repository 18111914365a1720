"""What a policy sees: read-only views that the engine implements."""

from __future__ import annotations

from typing import Protocol

from phalanx.workload.job import Job


class JobView(Protocol):
    """A job as a policy sees it."""

    @property
    def job(self) -> Job:
        """What was submitted."""

    @property
    def submitted_ms(self) -> int:
        """When."""

    @property
    def number(self) -> int:
        """Its place among all submissions."""


class RunView(Protocol):
    """A running attempt as a policy sees it."""

    @property
    def job(self) -> Job:
        """What was submitted."""

    @property
    def gpus(self) -> int:
        """GPUs it holds."""

    @property
    def started_ms(self) -> int:
        """When it started."""
