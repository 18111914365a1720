"""The files of the Tiresias simulator (Gu et al., NSDI'19): a CSV of jobs and a CSV of one row for the cluster."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from phalanx.cluster.cluster import NODE, Cluster, Node
from phalanx.cluster.formats.limits import GPUS_PER_NODE_MAX, NODES_MAX
from phalanx.document.field import CPUS_MAX, MB_PER_GB, MEMORY_GB_MAX
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.traces import values
from phalanx.simulate.traces.error import TraceError
from phalanx.simulate.traces.intake import Intake, LeftOut, with_gpus
from phalanx.simulate.traces.rows import Rows, open_rows

JOB_COLUMNS = ("job_id", "num_gpu", "submit_time", "duration")
WRITTEN_COLUMNS = (
    *("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration", "interval"),
    "queue",
)
CLUSTER_COLUMNS = ("num_switch", "num_node_p_switch", "num_gpu_p_node", "num_cpu_p_node", "mem_p_node")
MODEL_COLUMN = "model_name"
QUEUE_COLUMN = "queue"
"""No column of the simulator, which has one queue for all; a file may add it."""
SWITCH = "switch"
DEFAULT_QUEUE = "default"


def read_jobs(path: str, skip_bad_rows: bool = False) -> Trace:
    """Reads a file of jobs. Columns that the simulator itself does not use are passed over."""
    intake = Intake(path, skip_bad_rows)
    with open_rows(path) as table:
        job_id = table.reader("job_id", values.identity, "an id")
        gpus = table.reader("num_gpu", values.gpus, values.GPUS)
        submit = table.reader("submit_time", values.milliseconds, values.SECONDS)
        duration = table.reader("duration", values.milliseconds, values.SECONDS)
        model_at = table.column(MODEL_COLUMN) if MODEL_COLUMN in table.header else None
        queue_at = table.column(QUEUE_COLUMN) if QUEUE_COLUMN in table.header else None
        jobs = []
        for at in table.rows(intake.refuse):
            try:
                model = "" if model_at is None else values.text(at[1][model_at])
                queue = DEFAULT_QUEUE if queue_at is None else values.text(at[1][queue_at]) or DEFAULT_QUEUE
                job = TraceJob(job_id(*at), submit(*at), duration(*at), gpus(*at), queue, model=model)
                intake.name(job.id, at[0], "job_id")
                jobs.append(with_gpus(job))
            except (TraceError, LeftOut) as reason:
                intake.refuse(reason)
        return intake.trace(jobs)


def read_cluster(path: str) -> Cluster:
    """Reads a file of one row: so many switches of so many equal nodes."""
    with open_rows(path) as table:
        switches, nodes, gpus, cpus, memory_gb = _amounts(table)
    if switches * nodes > NODES_MAX:
        raise TraceError(path, f"expected at most {NODES_MAX:,} nodes, got {switches} switches of {nodes}")
    return Cluster(
        nodes=tuple(
            Node(f"n{i}", (f"s{i // nodes}",), gpus, cpus_milli=cpus * 1000, memory_mb=memory_gb * MB_PER_GB)
            for i in range(switches * nodes)
        ),
        levels=(SWITCH, NODE),
        name=Path(path).stem,
    )


def write_jobs(jobs: Sequence[TraceJob], path: str) -> None:
    """Writes jobs as the simulator has them, in whole seconds, and their queues in one column more."""
    rows = [
        [
            job.id,
            job.gpus,
            job.submit_ms // 1000,
            0,
            job.model,
            max(job.duration_ms // 1000, 1),
            max((later.submit_ms - job.submit_ms) // 1000, 0),
            job.queue,
        ]
        for job, later in zip(jobs, [*jobs[1:], *jobs[-1:]], strict=True)
    ]
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(WRITTEN_COLUMNS)
        writer.writerows(rows)


def write_cluster(path: str, *amounts: int) -> None:
    """Writes the row of a cluster: switches, nodes of each, and GPUs, CPUs and gigabytes of memory of a node."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(CLUSTER_COLUMNS)
        writer.writerow(amounts)


def _amounts(table: Rows) -> list[int]:
    limits = ((1, NODES_MAX), (1, NODES_MAX), (0, GPUS_PER_NODE_MAX), (0, CPUS_MAX), (0, MEMORY_GB_MAX))
    readers = [
        table.reader(name, partial(values.within, least=least, most=most), values.span(least, most))
        for name, (least, most) in zip(CLUSTER_COLUMNS, limits, strict=True)
    ]
    rows = list(table.rows())
    if len(rows) != 1:
        raise TraceError(table.source, f"expected one row below the header, found {len(rows)}")
    return [read(*rows[0]) for read in readers]
