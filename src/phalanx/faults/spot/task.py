"""What is to be done by when, and how it is saved."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from phalanx.faults.reliability.intervals import daly_s
from phalanx.faults.spot.zone import SpotError


@dataclass(frozen=True, slots=True)
class Task:
    """Hours of work, due after `deadline_h`. To start or to change takes `changeover_h`.

    A save takes `save_h`; one that fits into the notice of a reclaim loses nothing. `interval_h` is the work between
    saves on spot nodes.
    """

    work_h: float
    deadline_h: float
    changeover_h: float = 0.1
    save_h: float = 0.02
    notice_h: float = 2 / 60
    interval_h: float = 1.0

    def __post_init__(self) -> None:
        for name in ("work_h", "deadline_h", "changeover_h", "save_h", "notice_h", "interval_h"):
            value = getattr(self, name)
            if not (isfinite(value) and value >= 0):
                raise SpotError(f"{name} is {value}: expected a number of at least 0")
        if self.work_h <= 0 or self.interval_h <= 0:
            raise SpotError("the work and the time between two saves: expected numbers above 0")
        if self.deadline_h < self.work_h + self.changeover_h:
            raise SpotError(
                f"a deadline of {self.deadline_h:g} h cannot be met: {self.work_h:g} h of work and a start of "
                f"{self.changeover_h:g} h take longer without any failure"
            )

    @property
    def speed(self) -> float:
        """The part of its time on spot nodes in which it works, beside its saves."""
        return self.interval_h / (self.interval_h + self.save_h)

    @property
    def loses(self) -> bool:
        """Whether a reclaim loses work: the save that is under way and another do not fit into the notice."""
        return 2 * self.save_h > self.notice_h


def best_interval_h(save_h: float, reclaims_per_h: float, longest_h: float) -> float:
    """The interval for a rate of reclaims, by Daly's higher order."""
    if not reclaims_per_h or not save_h:
        return longest_h
    return max(min(daly_s(save_h, 1 / reclaims_per_h), longest_h), save_h)
