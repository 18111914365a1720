"""The course of a job between failures: how long each step of a recovery takes, and how often it saves its work."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import isfinite

from phalanx.errors import PhalanxError


class CourseError(PhalanxError):
    """Times or rates that no job can have."""


@dataclass(frozen=True, slots=True)
class Course:
    """Times in seconds, `per_hour` failures of the whole job in an hour.

    After a failure `detect_s` pass until it is noticed, `queue_s` until there is a place again, and `restart_s` and
    `reload_s` until work goes on from the last save. Every `interval_s` of work it is saved, which takes `save_s`.
    """

    per_hour: float
    interval_s: float
    save_s: float = 0.0
    detect_s: float = 0.0
    queue_s: float = 0.0
    restart_s: float = 300.0
    reload_s: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            # Written so that NaN, which fails every comparison, is refused too.
            if not (isfinite(value) and value >= 0):
                raise CourseError(f"{field.name} is {value}: expected a finite number of at least 0")
        if not self.interval_s:
            raise CourseError("interval_s is 0: expected a time above 0 between two saves")

    @property
    def per_s(self) -> float:
        """Failures in a second."""
        return self.per_hour / 3600

    @property
    def mttf_s(self) -> float:
        """Mean time between two failures of the job."""
        return 1 / self.per_s if self.per_hour else float("inf")

    @property
    def down_s(self) -> float:
        """From a failure to the beginning of the next start: here the job cannot fail again."""
        return self.detect_s + self.queue_s

    @property
    def up_s(self) -> float:
        """From the beginning of a start until work goes on: here it can."""
        return self.restart_s + self.reload_s

    def every(self, interval_s: float) -> Course:
        """The same with another interval."""
        return replace(self, interval_s=interval_s)
