"""Alibaba's trace of 2020 (Weng et al., NSDI'22; PAI): tables of tasks, of jobs and of machines, as published.

A row of the table of tasks is one role of a job: so many instances, each with `plan_gpu` percent of a GPU. The table of
jobs, where it lies beside it, says when jobs were submitted and by which user. The published tables have no headers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import ceil
from pathlib import Path

from phalanx.cluster.cluster import Cluster, Node
from phalanx.cluster.formats.limits import GPUS_PER_NODE_MAX
from phalanx.document.field import MB_PER_GB
from phalanx.simulate.trace import Ending, Trace, TraceJob
from phalanx.simulate.traces import values
from phalanx.simulate.traces.dated import since_first
from phalanx.simulate.traces.error import TraceError
from phalanx.simulate.traces.intake import Intake, LeftOut, with_gpus
from phalanx.simulate.traces.rows import Layout, Rows, open_rows

TASK_COLUMNS = (
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
    *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
)
JOB_COLUMNS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
MACHINE_COLUMNS = ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu")
JOB_TABLE = "pai_job_table.csv"
STATUSES = {"Terminated": Ending.COMPLETED, "Failed": Ending.FAILED, "Running": None, "Waiting": None}
ANY_TYPE = ("", "MISC", "CPU")
WHOLE = 100
PARTS_BEYOND = "tasks with a part beside whole GPUs, read with one GPU more"


@dataclass(frozen=True, slots=True)
class Part:
    """One task of a job that asks for GPUs."""

    instances: int
    percent: float
    gpu_type: str
    cpus_milli: int
    memory_mb: int


@dataclass(slots=True)
class Gathered:
    """What is known of a job so far."""

    line: int
    start_ms: int | None = None
    end_ms: int | None = None
    ending: Ending | None = Ending.COMPLETED
    parts: list[Part] = field(default_factory=list)


def has_no_header(fields: list[str]) -> bool:
    """Whether a first line is a row of the table of tasks as it was published."""
    return len(fields) == len(TASK_COLUMNS) and fields[3] in STATUSES


def read_tasks(path: str, skip_bad_rows: bool = False) -> Trace:
    """Reads the table of tasks."""
    return _read(path, skip_bad_rows, Layout())


def read_bare_tasks(path: str, skip_bad_rows: bool = False) -> Trace:
    """Likewise, without a header."""
    return _read(path, skip_bad_rows, Layout(header=TASK_COLUMNS))


def _read(path: str, skip_bad_rows: bool, layout: Layout) -> Trace:
    intake = Intake(path, skip_bad_rows)
    jobs: dict[str, Gathered] = {}
    with open_rows(path, layout) as table:
        readers = _Readers(table)
        for at in table.rows(intake.refuse):
            try:
                readers.gather(jobs, *at)
            except TraceError as reason:
                intake.refuse(reason)
    submissions = _submissions(path)
    found = []
    for name, job in jobs.items():
        try:
            found.append(_job(name, job, submissions.get(name), intake))
        except LeftOut as reason:
            intake.refuse(reason)
    return intake.trace(since_first(found))


class _Readers:
    """What reads the columns of the table of tasks."""

    def __init__(self, table: Rows) -> None:
        self.source = table.source
        self.name = table.reader("job_name", values.identity, "the name of a job")
        self.instances = table.reader("inst_num", values.gpus, "a whole number of instances")
        self.status = table.reader("status", _ending, f"one of {', '.join(STATUSES)}")
        self.start = table.reader("start_time", _time, values.SECONDS)
        self.end = table.reader("end_time", _time, values.SECONDS)
        self.gpu = table.reader("plan_gpu", _percent, "percent of a GPU")
        self.cpu = table.reader("plan_cpu", _percent, "percent of a CPU")
        self.memory = table.reader("plan_mem", _percent, "GB of memory")
        self.type = table.reader("gpu_type", values.text, "a GPU type")

    def gather(self, jobs: dict[str, Gathered], line: int, row: list[str]) -> None:
        """Adds a row to its job; nothing is added of a row of which any field is wrong."""
        name, instances, ending = self.name(line, row), self.instances(line, row), self.status(line, row)
        start_ms, end_ms, percent = self.start(line, row), self.end(line, row), self.gpu(line, row)
        if start_ms is not None and end_ms is not None and end_ms < start_ms:
            raise TraceError(self.source, "expected a time after start_time", line, "end_time")
        cpus_milli, memory_mb = round(10 * self.cpu(line, row)), round(MB_PER_GB * self.memory(line, row))
        part = Part(instances, percent, self.type(line, row).strip(), cpus_milli, memory_mb)
        job = jobs.setdefault(name, Gathered(line))
        if ending is None or job.ending is None:
            job.ending = None
        elif ending is Ending.FAILED:
            job.ending = ending
        if start_ms is not None:
            job.start_ms = start_ms if job.start_ms is None else min(job.start_ms, start_ms)
        if end_ms is not None:
            job.end_ms = end_ms if job.end_ms is None else max(job.end_ms, end_ms)
        if part.percent and part.instances:
            job.parts.append(part)


def _job(name: str, job: Gathered, submitted: tuple[int, str] | None, intake: Intake) -> TraceJob:
    if job.ending is None or job.start_ms is None or job.end_ms is None or job.end_ms < job.start_ms:
        raise LeftOut("that had not ended, or of which no times are known")
    if not job.parts:
        raise LeftOut("without GPUs")
    if len(job.parts) > 1:
        intake.remark("several kinds of tasks with GPUs, read as equal ones")
    if any(part.percent > WHOLE and part.percent % WHOLE for part in job.parts):
        intake.remark(PARTS_BEYOND)
    largest = max(job.parts, key=lambda part: part.instances * part.percent)
    single = len(job.parts) == 1 and largest.percent < WHOLE
    each = ceil(largest.percent / WHOLE)
    gpus = sum(part.instances * ceil(part.percent / WHOLE) for part in job.parts)
    submit_ms, user = submitted if submitted is not None else (job.start_ms, "")
    types = [part.gpu_type for part in job.parts if part.gpu_type not in ANY_TYPE]
    return with_gpus(
        TraceJob(
            name,
            min(submit_ms, job.start_ms),
            job.end_ms - job.start_ms,
            gpus,
            user=user,
            gpus_per_node=each if gpus % each == 0 else 0,
            gpu_type=types[0] if types else "",
            ending=job.ending,
            gpu_milli=max(round(10 * largest.percent), 1) % 1000 if single else 0,
            cpus_milli=largest.cpus_milli,
            memory_mb=largest.memory_mb,
        )
    )


def _submissions(path: str) -> dict[str, tuple[int, str]]:
    """When jobs were submitted and by which user, if the table of jobs lies beside that of tasks."""
    beside = Path(path).with_name(JOB_TABLE)
    if not beside.is_file():
        return {}
    found: dict[str, tuple[int, str]] = {}
    with open_rows(str(beside), Layout(header=JOB_COLUMNS)) as table:
        start = table.reader("start_time", _time, values.SECONDS)
        for line, row in table.rows():
            # The published table has no header; one that has been given one is read just as well.
            at_ms = start(line, row) if row[0] != JOB_COLUMNS[0] else None
            if at_ms is not None:
                found[row[0]] = (at_ms, values.text(row[2]))
    return found


def _ending(text: str) -> Ending | None:
    if text not in STATUSES:
        raise ValueError(text)
    return STATUSES[text]


def _time(text: str) -> int | None:
    return values.milliseconds(text) if text.strip() else None


def _percent(text: str) -> float:
    if not text.strip():
        return 0.0
    number = float(text)
    if not 0 <= number <= 1_000_000:
        raise ValueError(text)
    return number


def read_machines(path: str) -> Cluster:
    """Reads the table of machines, with its header."""
    with open_rows(path) as table:
        name = table.reader("machine", values.identity, "the name of a machine")
        gpu_type = table.reader("gpu_type", values.text, "a GPU type")
        most = GPUS_PER_NODE_MAX
        gpus = table.reader("cap_gpu", partial(values.within, least=0, most=most), values.span(0, most))
        cpus = table.reader("cap_cpu", values.gpus, "a whole number of CPUs")
        memory = table.reader("cap_mem", values.gpus, "a whole number of GB")
        nodes: dict[str, Node] = {}
        for at in table.rows():
            named = gpu_type(*at)
            node = Node(
                name(*at),
                (),
                gpus(*at),
                "" if named in ANY_TYPE else named,
                cpus_milli=1000 * cpus(*at),
                memory_mb=MB_PER_GB * memory(*at),
            )
            if node.name in nodes:
                raise TraceError(path, f"expected a name that no other machine has, got {node.name}", at[0], "machine")
            nodes[node.name] = node
    if not nodes:
        raise TraceError(path, "expected at least one machine")
    return Cluster(tuple(nodes.values()), name=Path(path).stem)
