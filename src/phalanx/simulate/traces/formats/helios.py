"""Logs of SenseTime's Helios (Hu et al., SC'21) and Shanghai AI Lab's Acme (Hu et al., NSDI'24): a CSV row a job.

Both were written from a scheduler's accounting, with nearly the same columns. Helios has the virtual cluster of a job
(`vc`) and local times, Acme what a job is for (`type`) and times with their distance from UTC. `queue` is no queue: it
is the seconds that a job waited, and is not read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from phalanx.simulate.trace import Ending, Trace, TraceJob
from phalanx.simulate.traces import values
from phalanx.simulate.traces.dated import since_first
from phalanx.simulate.traces.error import TraceError
from phalanx.simulate.traces.formats.states import ending_of
from phalanx.simulate.traces.intake import Intake, LeftOut, with_gpus
from phalanx.simulate.traces.rows import Rows, open_rows

COLUMNS = ("job_id", "gpu_num", "node_num", "state", "submit_time", "duration")
Row: TypeAlias = tuple[int, list[str]]
"""A line and its fields."""

A_SECOND_MS = 1000
NO_TIME = ("", "none", "nan", "nat", "null", "unknown")

NEVER_RAN = "that never ran"
WITH_WAIT = "durations that are not the time from start to end, as where they include the wait, read as that time"


def read_log(path: str, skip_bad_rows: bool = False) -> Trace:
    """Reads a log of either."""
    intake = Intake(path, skip_bad_rows)
    with open_rows(path) as table:
        job_id = table.reader("job_id", values.identity, "an id")
        gpus = table.reader("gpu_num", values.gpus, values.GPUS)
        nodes = table.reader("node_num", values.gpus, "a whole number of nodes")
        state = table.reader("state", ending_of, "a state of Slurm such as COMPLETED")
        submit = table.reader("submit_time", values.zoned_ms, values.ZONED)
        ran = _Ran(table)
        jobs = []
        for at in table.rows(intake.refuse):
            try:
                ending = state(*at)
                job = TraceJob(
                    job_id(*at),
                    submit(*at),
                    ran.ms(at, ending),
                    gpus(*at),
                    queue=_text(table, at[1], "vc") or "default",
                    user=_text(table, at[1], "user"),
                    model=_text(table, at[1], "type").lower(),
                    ending=ending or Ending.COMPLETED,
                )
                with_gpus(job)
                intake.name(job.id, at[0], "job_id")
                jobs.append(_on_nodes(job, nodes(*at)))
                if not ran.is_told(at, job.duration_ms):
                    intake.remark(WITH_WAIT)
            except (TraceError, LeftOut) as reason:
                intake.refuse(reason)
    return intake.trace(since_first(jobs))


class _Ran:
    """How long jobs ran: from their start to their end where both are told, else their `duration`.

    In the log of Acme's Kalos durations count from the submission.
    """

    def __init__(self, table: Rows) -> None:
        self._source = table.source
        self._told = table.reader("duration", values.milliseconds, values.SECONDS)
        self._start, self._end = (
            table.reader(name, _moment, values.ZONED) if name in table.header else _not_told
            for name in ("start_time", "end_time")
        )
        self._tells_starts = "start_time" in table.header

    def ms(self, at: Row, ending: Ending | None) -> int:
        """Of one job. One that was cancelled while it waited is nothing to simulate."""
        start_ms, end_ms = self._start(*at), self._end(*at)
        ran_ms = self._told(*at) if start_ms is None or end_ms is None else end_ms - start_ms
        never_started = self._tells_starts and start_ms is None
        if ending is None or (ending is Ending.CANCELLED and (never_started or not ran_ms)):
            raise LeftOut(NEVER_RAN)
        if ran_ms < 0:
            raise TraceError(self._source, "expected a time after start_time", at[0], "end_time")
        return ran_ms

    def is_told(self, at: Row, ran_ms: int) -> bool:
        """Whether `duration` says the same."""
        return abs(self._told(*at) - ran_ms) < A_SECOND_MS


def _not_told(line: int, row: list[str]) -> None:
    return None


def _moment(text: str) -> int | None:
    return None if text.strip().lower() in NO_TIME else values.zoned_ms(text)


def _on_nodes(job: TraceJob, nodes: int) -> TraceJob:
    """With its GPUs divided as they were, where they were divided evenly."""
    if nodes > 1 and job.gpus % nodes == 0:
        return replace(job, gpus_per_node=job.gpus // nodes)
    return job


def _text(table: Rows, row: list[str], name: str) -> str:
    return values.text(row[table.header.index(name)].strip()) if name in table.header else ""
