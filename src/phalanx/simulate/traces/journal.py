"""Our own journal as a trace: the jobs that were submitted, and how long they ran until they ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from phalanx.engine.apply import apply
from phalanx.engine.event import AttemptEnded, Done, JobCancelled
from phalanx.engine.journal import Record, decode
from phalanx.engine.records import AttemptRecord, JobRecord, JobState, Phase
from phalanx.engine.state import State
from phalanx.errors import PhalanxError
from phalanx.simulate.trace import Ending, Trace, TraceJob
from phalanx.simulate.traces.error import TraceError
from phalanx.simulate.traces.intake import Intake, LeftOut, with_gpus
from phalanx.workload.gang import Role, Task
from phalanx.workload.job import Job

ENDINGS = {
    JobState.SUCCEEDED: Ending.COMPLETED,
    JobState.FAILED: Ending.FAILED,
    JobState.CANCELLED: Ending.CANCELLED,
}
NOT_ENDED = "that had not ended"
NEVER_STARTED = "that failed before they ran"
SHARING = "jobs that share devices, counted with whole GPUs"


@dataclass(slots=True)
class Course:
    """How a job runs. `duration_ms` is what its last attempt ran, plus what it found saved by those before it."""

    duration_ms: int = 0
    has_run: bool = False
    cancelled_ms: int | None = None
    begun_ms: int | None = None
    paused_since_ms: int | None = None
    paused_ms: int = 0
    saved_ms: int = 0

    def begin(self, now: int) -> None:
        """An attempt runs."""
        self.begun_ms, self.paused_since_ms, self.paused_ms = now, None, 0
        self.has_run = True

    def pause(self, now: int) -> None:
        """The attempt is frozen."""
        if self.paused_since_ms is None:
            self.paused_since_ms = now

    def go_on(self, now: int) -> None:
        """The attempt is frozen no more."""
        if self.paused_since_ms is not None:
            self.paused_ms += now - self.paused_since_ms
            self.paused_since_ms = None

    def end(self, durable_ms: int, now: int) -> None:
        """The attempt is over; what it had made durable is kept if another follows."""
        if self.begun_ms is None:
            return
        self.go_on(now)
        # Stopping takes a while, but the user wanted no more of it from here on.
        until_ms = now if self.cancelled_ms is None else self.cancelled_ms
        self.duration_ms = self.saved_ms + max(until_ms - self.begun_ms - self.paused_ms, 0)
        self.saved_ms += max(durable_ms - self.begun_ms - self.paused_ms, 0)
        self.begun_ms = None


@dataclass(slots=True)
class Watch:
    """Folds records and looks on."""

    state: State = field(default_factory=State)
    courses: dict[str, Course] = field(default_factory=dict)

    def see(self, record: Record, line: bytes) -> None:
        """Folds one record in."""
        body = record.body
        attempt = self._attempt_of(body)
        apply(self.state, record, line)
        if isinstance(body, JobCancelled):
            self.course(body.job).cancelled_ms = record.now
        if attempt is not None:
            self._follow(attempt, record.now)

    def course(self, job: str) -> Course:
        """How a job runs."""
        return self.courses.setdefault(job, Course())

    def _attempt_of(self, body: object) -> AttemptRecord | None:
        match body:
            case Done(action=action):
                return self.state.attempt(action.job, action.attempt)
            case AttemptEnded(job=job, attempt=attempt):
                return self.state.attempt(job, attempt)
            case _:
                return None

    def _follow(self, attempt: AttemptRecord, now: int) -> None:
        course = self.course(attempt.job.id)
        if self.state.attempt(attempt.job.id, attempt.number) is None:
            course.end(attempt.durable_ms, now)
        elif attempt.phase is Phase.SUSPENDED:
            course.pause(now)
        elif attempt.phase is Phase.RUNNING:
            if course.begun_ms is None:
                course.begin(now)
            course.go_on(now)


def read_journal(path: str, skip_bad_rows: bool = False) -> Trace:
    """Reads a journal. With `skip_bad_rows` it is read up to the first record that does not fold."""
    intake = Intake(path, skip_bad_rows)
    watch = Watch()
    for line, content in _lines(path):
        try:
            if not intake.dropped:
                watch.see(decode(content), content)
                continue
            intake.dropped += 1
        except (ValueError, PhalanxError) as error:
            intake.refuse(TraceError(path, str(error), line))
            intake.notes.append(f"the journal was read up to line {line - 1}")
    return intake.trace(_jobs(watch, intake))


def _lines(path: str) -> Iterator[tuple[int, bytes]]:
    with Path(path).open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, line.strip()


def _jobs(watch: Watch, intake: Intake) -> list[TraceJob]:
    records = watch.state.jobs.values()
    first_ms = min((record.submitted_ms for record in records), default=0)
    jobs = []
    for record in records:
        try:
            jobs.append(_job(record, watch.course(record.job.id), first_ms, intake))
        except LeftOut as reason:
            intake.refuse(reason)
    return jobs


def _job(record: JobRecord, course: Course, first_ms: int, intake: Intake) -> TraceJob:
    job = record.job
    if record.final is None:
        raise LeftOut(NOT_ENDED)
    if any(task.share for task in _tasks(job.gang.roles)):
        intake.remark(SHARING)
    trace_job = with_gpus(_as_submitted(record, first_ms))
    if course.has_run:
        return replace(trace_job, duration_ms=course.duration_ms, ending=ENDINGS[record.final])
    if course.cancelled_ms is None:
        raise LeftOut(NEVER_STARTED)
    cancel_ms = course.cancelled_ms - first_ms
    # Were it to start at once this time, it would still run when it is cancelled.
    duration_ms = job.duration_ms or cancel_ms - trace_job.submit_ms
    return replace(trace_job, duration_ms=duration_ms, ending=Ending.CANCELLED, cancel_ms=cancel_ms)


def _as_submitted(record: JobRecord, first_ms: int) -> TraceJob:
    job, gang = record.job, record.job.gang
    tasks = list(_tasks(gang.roles))
    sizes = dict.fromkeys(task.gpus for task in tasks)
    types = list(dict.fromkeys(gpu_type for task in tasks for gpu_type in task.gpu_types))
    return TraceJob(
        id=job.id,
        submit_ms=record.submitted_ms - first_ms,
        duration_ms=0,
        gpus=gang.gpus_max,
        queue=job.queue,
        user=job.user,
        priority=job.priority,
        gpus_per_node=tasks[0].gpus if len(sizes) == 1 else 0,
        gpu_type=types[0] if len(types) == 1 else "",
        min_gpus=gang.gpus_min if gang.elastic else 0,
        max_gpus=gang.gpus_max if gang.elastic else 0,
        deadline_ms=_deadline_ms(job, record.submitted_ms, first_ms),
        checkpoint_cost_ms=job.checkpoint.cost_ms,
        kind=job.kind,
    )


def _deadline_ms(job: Job, submitted_ms: int, first_ms: int) -> int | None:
    if job.deadline_ms is None or job.deadline_ms < submitted_ms:
        return None
    return job.deadline_ms - first_ms


def _tasks(roles: tuple[Role, ...]) -> Iterator[Task]:
    for role in roles:
        yield from _tasks(role.members) if role.members else (role.task,)
