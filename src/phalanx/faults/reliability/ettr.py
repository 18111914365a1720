"""The effective training time ratio in closed form: the part of its time in which a job does work that is kept."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1

from phalanx.faults.reliability.course import Course

SAFE_EXPONENT = 600.0
"""Beyond it a job does as good as nothing, and e to the power would be no number any more."""


@dataclass(frozen=True, slots=True)
class Split:
    """Where the time of a job goes, as parts of all. Together they are 1."""

    work: float
    save: float
    redo: float
    detect: float
    queue: float
    restart: float
    reload: float

    @property
    def parts(self) -> dict[str, float]:
        """Each part by its name."""
        return {name: getattr(self, name) for name in PARTS}


PARTS = ("work", "save", "redo", "detect", "queue", "restart", "reload")


def published_ettr(course: Course) -> float:
    """As Meta has it (Kokolis et al., HPCA 2025), to first order: (1 − λ(u₀ + Δ/2)) / (1 + w/Δ).

    u₀ is all of a recovery but for the queue. Where failures follow one another faster than a recovery it is below 0,
    where 0 is given.
    """
    lost_s = course.detect_s + course.up_s + course.interval_s / 2
    share = (1 - course.per_s * lost_s) / (1 + course.save_s / course.interval_s)
    return max(share / (1 + course.queue_s * course.per_s), 0.0)


def exact_ettr(course: Course) -> float:
    """Exact where failures are exponential, by renewal: Δ / (e^(λR)·(1/λ + D)·(e^(λ(Δ+w)) − 1)).

    D is the time in which the job cannot fail (noticing, pending), R that in which it can (restart, reload): Daly, FGCS
    2006, has it with D = 0. A failure within a restart begins anew with D.
    """
    if not course.per_hour:
        return course.interval_s / (course.interval_s + course.save_s)
    rate = course.per_s
    segment, up = rate * (course.interval_s + course.save_s), rate * course.up_s
    if segment + up > SAFE_EXPONENT:
        return 0.0
    return course.interval_s / (exp(up) * (1 / rate + course.down_s) * expm1(segment))


def exact_split(course: Course) -> Split:
    """Where the time goes, exactly. Times are of one segment, from one save to the next, with all its failures.

    A segment needs e^(λ(Δ+w)) − 1 recoveries that come to their end, each of which takes e^(λR) starts.
    """
    ettr = exact_ettr(course)
    if not course.per_hour or not ettr:
        work, save = (ettr, 1 - ettr) if ettr else (0.0, 0.0)
        return Split(work, save, 0.0 if ettr else 1.0, 0.0, 0.0, 0.0, 0.0)
    rate, whole_s = course.per_s, course.interval_s / ettr
    recoveries = expm1(rate * (course.interval_s + course.save_s))
    starts = recoveries * exp(rate * course.up_s)
    restart_s = starts * -expm1(-rate * course.restart_s) / rate
    reload_s = starts * exp(-rate * course.restart_s) * -expm1(-rate * course.reload_s) / rate
    detect_s, queue_s = starts * course.detect_s, starts * course.queue_s
    booked_s = course.interval_s + course.save_s + restart_s + reload_s + detect_s + queue_s
    return Split(
        ettr,
        course.save_s / whole_s,
        max(whole_s - booked_s, 0.0) / whole_s,
        *(each / whole_s for each in (detect_s, queue_s, restart_s, reload_s)),
    )


def goodput(ettr: float, nodes: int, spares: int) -> float:
    """The part of what was provisioned, spares too, that does work which is kept."""
    return ettr * nodes / (nodes + spares)
