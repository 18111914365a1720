"""Logs of SenseTime's Helios (Hu et al., SC'21) and Shanghai AI Lab's Acme (Hu et al., NSDI'24): a CSV row a job.

Both were written from Slurm's accounting, with nearly the same columns. Helios has the virtual cluster of a job (`vc`)
and local times, Acme what a job is for (`type`) and times with their distance from UTC.
"""

from __future__ import annotations

from dataclasses import replace

from phalanx.simulate.trace import Ending, Trace, TraceJob
from phalanx.simulate.traces import values
from phalanx.simulate.traces.dated import since_first
from phalanx.simulate.traces.error import TraceError
from phalanx.simulate.traces.intake import Intake, LeftOut, with_gpus
from phalanx.simulate.traces.rows import Rows, open_rows
from phalanx.simulate.traces.states import ending_of

COLUMNS = ("job_id", "gpu_num", "node_num", "state", "submit_time", "duration")
QUEUES = ("vc", "queue")
"""Where the queue of a job stands, the first that is there."""

NEVER_RAN = "that never ran"


def read_log(path: str, skip_bad_rows: bool = False) -> Trace:
    """Reads a log of either."""
    intake = Intake(path, skip_bad_rows)
    with open_rows(path) as table:
        job_id = table.reader("job_id", values.identity, "an id")
        gpus = table.reader("gpu_num", values.gpus, values.GPUS)
        nodes = table.reader("node_num", values.gpus, "a whole number of nodes")
        state = table.reader("state", ending_of, "a state of Slurm such as COMPLETED")
        submit = table.reader("submit_time", values.zoned_ms, values.ZONED)
        duration = table.reader("duration", values.milliseconds, values.SECONDS)
        jobs = []
        for at in table.rows(intake.refuse):
            try:
                ending = state(*at)
                job = TraceJob(
                    job_id(*at),
                    submit(*at),
                    _ran(duration(*at), ending),
                    gpus(*at),
                    queue=_queue(table, at[1]),
                    user=_text(table, at[1], "user"),
                    model=_text(table, at[1], "type").lower(),
                    ending=ending or Ending.COMPLETED,
                )
                with_gpus(job)
                intake.name(job.id, at[0], "job_id")
                jobs.append(_on_nodes(job, nodes(*at)))
            except (TraceError, LeftOut) as reason:
                intake.refuse(reason)
    return intake.trace(since_first(jobs))


def _ran(duration_ms: int, ending: Ending | None) -> int:
    """How long a job ran. One that was cancelled while it waited has a duration of 0 and is nothing to simulate."""
    if ending is None or (ending is Ending.CANCELLED and not duration_ms):
        raise LeftOut(NEVER_RAN)
    return duration_ms


def _on_nodes(job: TraceJob, nodes: int) -> TraceJob:
    """With its GPUs divided as they were, where they were divided evenly."""
    if nodes > 1 and job.gpus % nodes == 0:
        return replace(job, gpus_per_node=job.gpus // nodes)
    return job


def _queue(table: Rows, row: list[str]) -> str:
    return next((text for name in QUEUES if (text := _text(table, row, name))), "default")


def _text(table: Rows, row: list[str], name: str) -> str:
    return values.text(row[table.header.index(name)].strip()) if name in table.header else ""
