"""The traces of Microsoft's Philly (Jeon et al., ATC'19): the log of jobs, its distilled CSV, the list of machines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from phalanx.cluster.cluster import Cluster, Node
from phalanx.cluster.formats.limits import GPU_MEMORY_GB_MAX, GPUS_PER_NODE_MAX
from phalanx.document.error import brief
from phalanx.simulate.trace import Ending, Trace, TraceJob
from phalanx.simulate.traces import values
from phalanx.simulate.traces.error import TraceError
from phalanx.simulate.traces.intake import WITHOUT_GPUS, Intake, LeftOut
from phalanx.simulate.traces.rows import ROWS_MAX, open_rows, too_many

DISTILLED_COLUMNS = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
MACHINE_COLUMNS = ("machineId", "number of GPUs", "single GPU mem")

STATUS = {"Pass": Ending.COMPLETED, "Killed": Ending.CANCELLED, "Failed": Ending.FAILED}
NO_TIME = (None, "", "None", "null")
UNKNOWN_MEMORY = ("", "NA", "None")
CLOCK_PUT_BACK_MS = 3_600_000
"""The log has local times: what runs while summer time ends may end an hour before it began."""

BYTES_MAX = 2_000_000_000
"""Of a log, which is one JSON list: ten times that of Philly's three months."""

NEVER_RAN = "with no attempts (they never ran)"
NO_SUBMISSION = "with no time of submission"
NO_END = "whose last attempt has no start or no end (they still ran, or were not logged)"
PUT_BACK = "attempts that end before they begin (the clock was put back), counted as 0 s"

_BYTE = re.compile(r"\(byte (\d+)\)")
_MEMORY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:GB|G|GiB)?\s*", re.IGNORECASE)


class Machine(msgspec.Struct, frozen=True):
    """GPUs of one machine that an attempt had."""

    gpus: list[str] | None = None


class LoggedAttempt(msgspec.Struct, frozen=True):
    """One attempt as logged."""

    start_time: str | None = None
    end_time: str | None = None
    detail: list[Machine] | None = None

    @property
    def gpus(self) -> int:
        """GPUs it had on all its machines."""
        return sum(len(machine.gpus or ()) for machine in self.detail or ())


class LoggedJob(msgspec.Struct, frozen=True):
    """One job as logged. Fields that are not read are left out."""

    jobid: str
    status: str
    attempts: list[LoggedAttempt] | None
    submitted_time: str | None = None
    vc: str | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True)
class Dated:
    """A job whose submission is a date, while the first of all is not known yet."""

    submit_ms: int
    id: str
    duration_ms: int
    gpus: int
    queue: str
    user: str = ""
    ending: Ending = Ending.COMPLETED


def read_log(path: str, skip_bad_rows: bool = False) -> Trace:
    """Reads `cluster_job_log`: a JSON list of jobs with their attempts."""
    intake = Intake(path, skip_bad_rows)
    decoder = msgspec.json.Decoder(LoggedJob)
    dated = []
    for number, raw in enumerate(_elements(path), start=1):
        place = f"job {number}"
        try:
            job = _dated(decoder.decode(raw), place, intake)
            intake.name(job.id, place, "jobid")
            dated.append(job)
        except msgspec.DecodeError as error:
            intake.refuse(TraceError(path, str(error), place))
        except (TraceError, LeftOut) as reason:
            intake.refuse(reason)
    return intake.trace(_since_first(dated))


def _elements(path: str) -> list[msgspec.Raw]:
    with Path(path).open("rb") as file:
        content = file.read(BYTES_MAX + 1).removeprefix(b"\xef\xbb\xbf")
    if len(content) > BYTES_MAX:
        reason = f"it is longer than {BYTES_MAX:,} bytes, and is read as a whole: take a part, such as a month"
        raise TraceError(path, reason)
    try:
        elements = msgspec.json.decode(content, type=list[msgspec.Raw])
        if len(elements) > ROWS_MAX:
            raise too_many(path, "jobs")
        return elements
    except msgspec.DecodeError as error:
        byte = _BYTE.search(str(error))
        line = content.count(b"\n", 0, int(byte[1])) + 1 if byte else content.count(b"\n") + 1
        raise TraceError(path, f"expected a whole JSON list of jobs: {error}", line) from None


def _dated(job: LoggedJob, place: str, intake: Intake) -> Dated:
    if not job.jobid:
        raise TraceError(intake.source, "expected an id, got nothing", place, "jobid")
    if job.status not in STATUS:
        reason = f"expected one of {', '.join(STATUS)}, got {brief(job.status)}"
        raise TraceError(intake.source, reason, place, "status")
    submit_ms = _moment(job.submitted_time, place, "submitted_time", intake)
    if submit_ms is None:
        raise LeftOut(NO_SUBMISSION)
    if not job.attempts:
        raise LeftOut(NEVER_RAN)
    runs = [_run_ms(attempt, place, intake) for attempt in job.attempts]
    if runs[-1] is None:
        raise LeftOut(NO_END)
    if not job.attempts[-1].gpus:
        raise LeftOut(WITHOUT_GPUS)
    return Dated(
        submit_ms,
        job.jobid,
        sum(run_ms for run_ms in runs if run_ms is not None),
        job.attempts[-1].gpus,
        job.vc or "default",
        job.user or "",
        STATUS[job.status],
    )


def _moment(text: str | None, place: str, key: str, intake: Intake) -> int | None:
    if text is None or text in NO_TIME:
        return None
    try:
        return values.moment_ms(text)
    except ValueError:
        raise TraceError(intake.source, f"expected {values.MOMENT}, got {brief(text)}", place, key) from None


def _run_ms(attempt: LoggedAttempt, place: str, intake: Intake) -> int | None:
    """How long an attempt ran; None if its start or end was not logged."""
    start_ms = _moment(attempt.start_time, place, "attempts.start_time", intake)
    end_ms = _moment(attempt.end_time, place, "attempts.end_time", intake)
    if start_ms is None or end_ms is None:
        return None
    if end_ms < start_ms - CLOCK_PUT_BACK_MS:
        reason = f"expected a time after start_time {attempt.start_time}, got {attempt.end_time}"
        raise TraceError(intake.source, reason, place, "attempts.end_time")
    if end_ms < start_ms:
        intake.remark(PUT_BACK)
    return max(end_ms - start_ms, 0)


def read_distilled(path: str, skip_bad_rows: bool = False) -> Trace:
    """Reads the distilled CSV. It has no ids: a job's id is the number of its row."""
    intake = Intake(path, skip_bad_rows)
    with open_rows(path) as table:
        submit = table.reader("timestamp", values.moment_ms, values.MOMENT)
        duration = table.reader("duration", values.milliseconds, values.SECONDS)
        gpus = table.reader("num_gpus", values.gpus, values.GPUS)
        queue = table.reader("cluster", values.text, "the name of a virtual cluster")
        dated = []
        for at in table.rows(intake.refuse):
            try:
                # The header is the first line.
                job = Dated(submit(*at), str(at[0] - 1), duration(*at), gpus(*at), queue(*at) or "default")
                if not job.gpus:
                    raise LeftOut(WITHOUT_GPUS)
                dated.append(job)
            except (TraceError, LeftOut) as reason:
                intake.refuse(reason)
    return intake.trace(_since_first(dated))


def _since_first(dated: list[Dated]) -> list[TraceJob]:
    first_ms = min((job.submit_ms for job in dated), default=0)
    return [
        TraceJob(
            job.id,
            job.submit_ms - first_ms,
            job.duration_ms,
            job.gpus,
            values.text(job.queue),
            values.text(job.user),
            ending=job.ending,
        )
        for job in dated
    ]


def read_machines(path: str) -> Cluster:
    """Reads `cluster_machine_list`. It tells neither the type of a GPU nor the racks, so all nodes lie side by side."""
    with open_rows(path) as table:
        machine, gpus_column, memory_column = MACHINE_COLUMNS
        name = table.reader(machine, _machine_name, "the name of a machine")
        most = GPUS_PER_NODE_MAX
        gpus = table.reader(gpus_column, partial(values.within, least=0, most=most), values.span(0, most))
        memory_gb = table.reader(memory_column, _memory_gb, "the memory of a GPU such as 24GB")
        nodes: dict[str, Node] = {}
        for at in table.rows():
            node = Node(name(*at), (), gpus(*at), gpu_memory_gb=memory_gb(*at))
            if node.name in nodes:
                raise TraceError(path, f"expected a name that no other machine has, got {node.name}", at[0], machine)
            nodes[node.name] = node
    if not nodes:
        raise TraceError(path, "expected at least one machine")
    return Cluster(tuple(nodes.values()), name=Path(path).stem)


def _machine_name(text: str) -> str:
    return values.identity(text.strip())


def _memory_gb(text: str) -> float:
    if text.strip() in UNKNOWN_MEMORY:
        return 0.0
    match = _MEMORY.fullmatch(text)
    if match is None or float(match[1]) > GPU_MEMORY_GB_MAX:
        raise ValueError(text)
    return float(match[1])
