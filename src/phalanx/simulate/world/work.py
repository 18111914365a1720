"""Work: what a job has to do in virtual time, and how it ends once that is done."""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.simulate.trace import Ending
from phalanx.workload.job import Job


@dataclass(frozen=True, slots=True)
class Work:
    """`duration_ms` at full speed; None never ends by itself. The job, where it is given, says how it checkpoints.

    With `every_ms` it saves its work so often, and stands still meanwhile.
    """

    duration_ms: int | None
    ending: Ending = Ending.COMPLETED
    job: Job | None = None
    every_ms: int = 0

    @property
    def saves(self) -> bool:
        """Whether it saves its work when it is told to stop; one of which nothing is known does."""
        return self.job is None or self.job.checkpoint.saves

    @property
    def checkpoint_interval_ms(self) -> int:
        """How often it saves its work by itself; 0 if it does not."""
        return self.every_ms or (self.job.checkpoint.interval_ms if self.job is not None else 0)

    def checkpoint_cost_ms(self, default_ms: int) -> int:
        """How long a checkpoint takes."""
        return (self.job.checkpoint.cost_ms if self.job is not None else 0) or default_ms

    def speed_beside_saves(self, default_ms: int) -> float:
        """The part of its speed that is left to a job which saves its work every `every_ms` of it."""
        return self.every_ms / (self.every_ms + self.checkpoint_cost_ms(default_ms)) if self.every_ms else 1.0
