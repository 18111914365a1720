"""Our own journal as a trace: the jobs that were submitted, and how long they ran until they ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from phalanx.cluster.capacity import MB_PER_GB
from phalanx.cluster.cluster import Cluster
from phalanx.engine.state.journal import decode
from phalanx.engine.state.records import JobRecord, JobState
from phalanx.errors import PhalanxError
from phalanx.protocol.event import ClusterChanged, ClusterDefined, PolicyChanged
from phalanx.simulate.submission import Submitter
from phalanx.simulate.trace import Ending, Trace, TraceJob
from phalanx.simulate.traces.course import Course, Watch
from phalanx.simulate.traces.error import TraceError
from phalanx.simulate.traces.intake import Intake, LeftOut, with_gpus
from phalanx.simulate.world.speed import MODEL_LABEL, asked_gpus
from phalanx.simulate.world.training import is_adaptive
from phalanx.workload.footprint import Footprint, footprint_of, step_ms_of
from phalanx.workload.gang import Role, Task
from phalanx.workload.job import Job
from phalanx.workload.share import ShareKind
from phalanx.workload.tier import named_tier

T = TypeVar("T")

NO_FOOTPRINT = Footprint(0.0, 0.0)

ENDINGS = {
    JobState.SUCCEEDED: Ending.COMPLETED,
    JobState.FAILED: Ending.FAILED,
    JobState.CANCELLED: Ending.CANCELLED,
}
NOT_ENDED = "that had not ended"
NEVER_STARTED = "that failed before they ran"
SHARING = "jobs that share devices otherwise than by fractions, counted with whole GPUs"


def read_journal(path: str, skip_bad_rows: bool = False) -> Trace:
    """Reads a journal. With `skip_bad_rows` it is read up to the first record that does not fold."""
    with Path(path).open("rb") as file:
        return read_lines(_numbered(file), path, skip_bad_rows)


def read_lines(lines: Iterable[tuple[int, bytes]], path: str, skip_bad_rows: bool = False) -> Trace:
    """Reads a journal that comes line by line, each with its number. `path` is what errors call it."""
    intake = Intake(path, skip_bad_rows)
    watch = Watch()
    for line, content in lines:
        try:
            if not intake.dropped:
                watch.see(decode(content), content)
                continue
            intake.dropped += 1
        except (ValueError, PhalanxError) as error:
            intake.refuse(TraceError(path, str(error), line))
            intake.notes.append(f"the journal was read up to line {line - 1}")
    return intake.trace(_jobs(watch, intake))


def read_cluster(path: str) -> Cluster:
    """The cluster of a journal as it was at its end, with the policy that decided then."""
    with Path(path).open("rb") as file:
        return _last_cluster(_numbered(file), path)


def _last_cluster(lines: Iterable[tuple[int, bytes]], path: str) -> Cluster:
    cluster, policy = Cluster(()), ""
    for line, content in lines:
        try:
            body = decode(content).body
        except (ValueError, PhalanxError) as error:
            raise TraceError(path, str(error), line) from error
        match body:
            case ClusterDefined():
                cluster, policy = body.cluster, body.policy
            case ClusterChanged():
                cluster = body.cluster
            case PolicyChanged():
                policy = body.policy
            case _:
                pass
    return replace(cluster, policy=policy or cluster.policy)


def _numbered(file: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(file, start=1):
        if line.strip():
            yield number, line.strip()


def _jobs(watch: Watch, intake: Intake) -> list[TraceJob]:
    records = watch.state.jobs.values()
    first_ms = min((record.submitted_ms for record in records), default=0)
    submitter = Submitter(watch.state.cluster)
    jobs = []
    for record in records:
        try:
            traced = _as_submitted(with_gpus(_submission(record, first_ms, intake)), record.job, submitter)
            jobs.append(_as_it_ran(traced, record, watch.course(record.job.id), first_ms))
        except LeftOut as reason:
            intake.refuse(reason)
    return jobs


def _as_it_ran(traced: TraceJob, record: JobRecord, course: Course, first_ms: int) -> TraceJob:
    if record.final is None:
        raise LeftOut(NOT_ENDED)
    said_ms = record.job.duration_ms
    if course.has_run:
        return replace(traced, duration_ms=course.duration_ms(said_ms), ending=ENDINGS[record.final])
    if course.cancelled_ms is None:
        raise LeftOut(NEVER_STARTED)
    cancel_ms = course.cancelled_ms - first_ms
    # Were it to start at once this time, it would still run when it is cancelled.
    duration_ms = said_ms or cancel_ms - traced.submit_ms
    return replace(traced, duration_ms=duration_ms, ending=Ending.CANCELLED, cancel_ms=cancel_ms)


def _submission(record: JobRecord, first_ms: int, intake: Intake) -> TraceJob:
    """What of a job does not depend on how its GPUs lie."""
    job, gang = record.job, record.job.gang
    tasks = list(_tasks(gang.roles))
    elastic, gpu_milli = gang.elastic, _gpu_milli(tasks)
    if any(task.share for task in tasks) and not (gpu_milli and not elastic):
        intake.remark(SHARING)
    tier, footprint = named_tier(job), footprint_of(job) or NO_FOOTPRINT
    return TraceJob(
        id=job.id,
        submit_ms=record.submitted_ms - first_ms,
        duration_ms=0,
        gpus=min(max(asked_gpus(job), gang.gpus_min), gang.gpus_max) if elastic else gang.gpus_max,
        queue=job.queue,
        user=job.user,
        priority=job.priority,
        gpu_type="|".join(_same([task.gpu_types for task in tasks if task.gpus]) or ()),
        model=next((value for name, value in job.labels if name == MODEL_LABEL), ""),
        min_gpus=gang.gpus_min if elastic else 0,
        max_gpus=gang.gpus_max if elastic else 0,
        deadline_ms=_deadline_ms(job, record.submitted_ms, first_ms),
        checkpoint_cost_ms=job.checkpoint.cost_ms,
        kind=job.kind,
        tier=tier.value if tier is not None else "",
        gpu_milli=0 if elastic else gpu_milli,
        cpus_milli=_same([task.cpus_milli for task in tasks]) or 0,
        memory_mb=_same([task.memory_mb for task in tasks]) or 0,
        batch="adaptive" if is_adaptive(job) else "",
        gpu_memory_mb=round(footprint.high_gb * MB_PER_GB),
        gpu_memory_low_mb=round(footprint.low_gb * MB_PER_GB) if footprint.low_gb < footprint.high_gb else 0,
        step_ms=round(step_ms_of(job) or 0),
    )


def _as_submitted(traced: TraceJob, job: Job, submitter: Submitter) -> TraceJob:
    """With how many of its GPUs lie on a node, unless that is what this cluster makes of it anyway."""
    if submitter.gang(traced) == job.gang:
        return traced
    each = [task.gpus for task in _tasks(job.gang.roles)]
    for gpus in dict.fromkeys(each):
        pinned = replace(traced, gpus_per_node=gpus)
        if gpus and submitter.gang(pinned) == job.gang:
            return pinned
    return replace(traced, gpus_per_node=_same(each) or 0)


def _gpu_milli(tasks: list[Task]) -> int:
    """The thousandths of a GPU that every task asks for; 0 if they ask for whole ones, or for parts of other kinds."""
    share = _same([task.share for task in tasks])
    fraction = share is not None and share.kind is ShareKind.FRACTION and not share.revocable
    return share.amount if share is not None and fraction and all(task.gpus == 1 for task in tasks) else 0


def _same(values: list[T]) -> T | None:
    """The value that all have."""
    return values[0] if values and all(value == values[0] for value in values) else None


def _deadline_ms(job: Job, submitted_ms: int, first_ms: int) -> int | None:
    if job.deadline_ms is None or job.deadline_ms < submitted_ms:
        return None
    return job.deadline_ms - first_ms


def _tasks(roles: tuple[Role, ...]) -> Iterator[Task]:
    for role in roles:
        yield from _tasks(role.members) if role.members else (role.task,)
