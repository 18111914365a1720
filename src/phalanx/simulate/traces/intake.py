"""Intake: jobs of a file as they are read, until they make a trace."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from pathlib import Path

from phalanx.document.error import brief
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.traces.error import TraceError

WITHOUT_GPUS = "without GPUs"
NAMED_MAX = 5
"""Bad rows that are told of; of the rest it is told how many they are."""
NOT_IN_ORDER = "jobs were not in the order of their submission: sorted"


class LeftOut(Exception):  # noqa: N818
    """A job that is as its format says and yet nothing to simulate. The text says which jobs those are."""


def with_gpus(job: TraceJob) -> TraceJob:
    """The job, if it has any GPUs."""
    if not job.gpus:
        raise LeftOut(WITHOUT_GPUS)
    return job


class Intake:
    """Takes good jobs; a bad row is an error, or dropped and named; what a format leaves out is noted."""

    def __init__(self, source: str, skip_bad_rows: bool) -> None:
        self.source = source
        self.skip_bad_rows = skip_bad_rows
        self.dropped = 0
        self.bad_rows: list[str] = []
        self.notes: list[str] = []
        self._left_out: Counter[str] = Counter()
        self._remarks: Counter[str] = Counter()
        self._ids: set[str] = set()

    def refuse(self, reason: TraceError | LeftOut) -> None:
        """Passes over a row, unless it is bad and bad rows are not to be skipped."""
        if isinstance(reason, LeftOut):
            self._left_out[str(reason)] += 1
            return
        if not self.skip_bad_rows:
            raise reason
        self.dropped += 1
        if len(self.bad_rows) < NAMED_MAX:
            self.bad_rows.append(str(reason))

    def remark(self, what: str) -> None:
        """Something in a job that was read otherwise than it is written."""
        self._remarks[what] += 1

    def name(self, job: str, place: int | str, column: str) -> None:
        """Takes a job's id, which must be new."""
        if job in self._ids:
            reason = f"expected an id that no other job has, got {brief(job)} again"
            raise TraceError(self.source, reason, place, column)
        self._ids.add(job)

    def trace(self, jobs: list[TraceJob]) -> Trace:
        """The trace, in the order of submission; jobs submitted at once keep the order of the file."""
        submit_ms = attrgetter("submit_ms")
        times = list(map(submit_ms, jobs))
        if times != sorted(times):
            jobs = sorted(jobs, key=submit_ms)
            self.notes.append(NOT_IN_ORDER)
        left_out = [f"jobs {why}, left out: {count:,}" for why, count in self._left_out.items()]
        remarks = [f"{what}: {count:,}" for what, count in self._remarks.items()]
        notes = (*left_out, *remarks, *self.notes)
        return Trace(Path(self.source).stem, tuple(jobs), self.dropped, notes, tuple(self.bad_rows))
