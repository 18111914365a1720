"""Targets: a figure of the jobs of a run, and the limit that it is to stay below: `p95 queued(gpus=8) < 10m`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from math import fsum, inf
from operator import eq, ge, gt, le, lt
from typing import ClassVar

from phalanx.document.error import brief
from phalanx.document.units import duration_ms, whole
from phalanx.engine.state.records import JobState
from phalanx.errors import PhalanxError
from phalanx.simulate.figures.result import JobResult
from phalanx.simulate.figures.spread import percentile

EXAMPLE = "p95 queued(gpus=8) < 10m"
_FIGURE = re.compile(r"(mean|max|p[0-9]{1,2})\s+([a-z]+)\s*(?:\(([^()]*)\))?")
_FILTER = re.compile(r"(gpus|queue)\s*(>=|<=|=|<|>)\s*(\S+)")
_COMPARE: Mapping[str, Callable[[int, int], bool]] = {"=": eq, ">=": ge, "<=": le, "<": lt, ">": gt}


class NoSuchJobsError(PhalanxError):
    """A figure that is of no job."""


class TargetError(PhalanxError):
    """A target that cannot be read, or that no job of a trace could meet or miss."""

    exit_code: ClassVar[int] = 2


def _queued_s(job: JobResult) -> float | None:
    return inf if _never_started(job) else job.queued_s


def _wait_s(job: JobResult) -> float | None:
    return inf if _never_started(job) else job.wait_s


def _jct_s(job: JobResult) -> float | None:
    if JobState(job.state).final:
        return job.jct_s if job.state == JobState.SUCCEEDED else None
    return inf


def _never_started(job: JobResult) -> bool:
    return job.start_s is None and not JobState(job.state).final


TIMES: Mapping[str, Callable[[JobResult], float | None]] = {"queued": _queued_s, "wait": _wait_s, "jct": _jct_s}


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs a figure is of: `gpus=8`, `gpus>=16`, `queue=research` with all queues inside."""

    key: str
    sign: str
    value: str

    def holds(self, gpus: int, queue: str) -> bool:
        """Whether a job with so many GPUs, of a queue, is one of them."""
        if self.key == "gpus":
            return _COMPARE[self.sign](gpus, int(self.value))
        return queue == self.value or queue.startswith(f"{self.value}/")

    def __str__(self) -> str:
        return f"{self.key}{self.sign}{self.value}"


@dataclass(frozen=True, slots=True)
class Figure:
    """The mean, the maximum or a percentile of a time of some jobs. A job that never started waits for ever."""

    statistic: str
    time: str
    filters: tuple[Filter, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Figure:
        """Reads `p95 queued(gpus=8,queue=research)`."""
        found = _FIGURE.fullmatch(text.strip())
        if found is None or found[2] not in TIMES or found[1] in ("p0", "p00"):
            times = ", ".join(TIMES)
            raise TargetError(
                f"{brief(text)}: expected mean, max or p1 to p99, then one of {times}, such as {EXAMPLE!r}"
            )
        filters = tuple(_filter(part.strip(), text) for part in (found[3] or "").split(",") if part.strip())
        return cls(found[1], found[2], filters)

    def is_of(self, gpus: int, queue: str) -> bool:
        """Whether it is of jobs with so many GPUs, of a queue."""
        return all(each.holds(gpus, queue) for each in self.filters)

    def of(self, jobs: Iterable[JobResult], without: Collection[str] = ()) -> float | None:
        """Its value, in seconds; infinite where so many jobs never started. None if it is of no job."""
        known = TIMES[self.time]
        found = (known(job) for job in jobs if job.job_id not in without and self.is_of(job.gpus, job.queue))
        values = sorted(value for value in found if value is not None)
        if not values:
            return None
        if self.statistic == "mean":
            return inf if values[-1] == inf else fsum(values) / len(values)
        return values[-1] if self.statistic == "max" else percentile(values, int(self.statistic[1:]))

    def __str__(self) -> str:
        of = f"({','.join(map(str, self.filters))})" if self.filters else ""
        return f"{self.statistic} {self.time}{of}"


@dataclass(frozen=True, slots=True)
class Target:
    """A figure, and the time below which it is to stay."""

    figure: Figure
    below_s: float

    @classmethod
    def parse(cls, text: str) -> Target:
        """Reads `p95 queued(gpus=8) < 10m`."""
        # The last sign: those before it are in brackets.
        figure, sign, limit = text.rpartition("<")
        if not sign or limit.count(")") or not figure.strip():
            raise TargetError(f"--target {brief(text)}: expected FIGURE < TIME, such as {EXAMPLE!r}")
        limit_ms = duration_ms(limit)
        if limit_ms is None or limit_ms <= 0:
            raise TargetError(
                f"--target {brief(text)}: {brief(limit.strip())}: expected a time above 0, such as 10m; {EXAMPLE!r}"
            )
        try:
            return cls(Figure.parse(figure), limit_ms / 1000)
        except TargetError as error:
            raise TargetError(f"--target {error}") from None


def _filter(part: str, text: str) -> Filter:
    found = _FILTER.fullmatch(part)
    if found is None or (found[1] == "queue" and found[2] != "="):
        raise TargetError(f"{brief(text)}: {brief(part)}: expected gpus=8, gpus>=16 or queue=NAME")
    if found[1] == "gpus" and (whole(found[3]) or 0) < 1:
        raise TargetError(f"{brief(text)}: {brief(part)}: expected a number of GPUs of at least 1")
    return Filter(found[1], found[2], found[3])
