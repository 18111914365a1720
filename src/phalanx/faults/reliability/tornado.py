"""Which figure of a recovery buys most: each is halved and doubled, all others left as they are."""

from __future__ import annotations

from dataclasses import dataclass, replace

from phalanx.faults.reliability.course import Course
from phalanx.faults.reliability.ettr import exact_ettr
from phalanx.faults.reliability.intervals import exact_s

FIGURES = {
    "per_hour": "failure rate",
    "restart_s": "restart",
    "reload_s": "reload",
    "detect_s": "detection",
    "queue_s": "queue",
    "save_s": "cost of a save",
    "interval_s": "interval",
}


@dataclass(frozen=True, slots=True)
class Bar:
    """What the ratio is with half and with twice a figure."""

    figure: str
    value: float
    halved: float
    doubled: float

    @property
    def swing(self) -> float:
        """How far apart both are."""
        return abs(self.halved - self.doubled)


def tornado(course: Course, keeps_interval: bool = True) -> list[Bar]:
    """A bar for each figure that is not 0, the longest first. Else the best interval is chosen anew for each."""
    bars = []
    for name, title in FIGURES.items():
        value = getattr(course, name)
        if value and (keeps_interval or name != "interval_s"):
            halved, doubled = (_ratio(replace(course, **{name: value * each}), keeps_interval) for each in (0.5, 2.0))
            bars.append(Bar(title, value, halved, doubled))
    return sorted(bars, key=lambda bar: -bar.swing)


def _ratio(course: Course, keeps_interval: bool) -> float:
    if keeps_interval:
        return exact_ettr(course)
    return exact_ettr(course.every(exact_s(course.save_s, course.mttf_s) or course.interval_s))
