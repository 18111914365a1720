"""What the State keeps of jobs, attempts and equivalence classes. Private to the engine; changed only by `apply`."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from phalanx.cluster.capacity import CPUS, MEMORY, Booking
from phalanx.placement.cells.ask import LABELS as CELL_LABELS
from phalanx.placement.placement import Placement
from phalanx.placement.sharing import share_permille
from phalanx.policy.policy import Key, Minds
from phalanx.policy.view import Usage
from phalanx.protocol.action import Action
from phalanx.protocol.reason import Reason
from phalanx.workload.gang import Gang, Role, Task
from phalanx.workload.job import Job, Kind

PreemptionGroup = tuple[int, str]
"""Priority and queue."""

OVERDUE = -(1 << 62)
"""Comes before the first number of every policy's keys."""

FOREVER_MS = 1 << 62
"""The length of a job whose end is unknown."""

UNSAID_MS = FOREVER_MS - 1
"""When jobs end whose end is unknown: after all others, and before one of them that starts now."""


class JobState(StrEnum):
    """The state of a job, as shown outside the engine."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    SUSPENDED = "suspended"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def sentence(self) -> str:
        """What a sentence says of a job in this state."""
        match self:
            case JobState.WAITING:
                return "is pending"
            case JobState.SUCCEEDED | JobState.FAILED:
                return f"has {self.value}"
            case JobState.CANCELLED:
                return "was cancelled"
        return f"is {self.value}"

    @property
    def final(self) -> bool:
        """Whether nothing more will happen to it."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


class Phase(StrEnum):
    """Where an attempt stands."""

    CLAIMED = "claimed"
    STARTING = "starting"
    RUNNING = "running"
    SUSPENDING = "suspending"
    SUSPENDED = "suspended"
    RESUMING = "resuming"
    RESIZING = "resizing"
    STOPPING = "stopping"
    ENDED = "ended"


PHASE_STATE = {
    Phase.CLAIMED: JobState.WAITING,
    Phase.STARTING: JobState.STARTING,
    Phase.RUNNING: JobState.RUNNING,
    Phase.SUSPENDING: JobState.SUSPENDED,
    Phase.SUSPENDED: JobState.SUSPENDED,
    Phase.RESUMING: JobState.SUSPENDED,
    Phase.RESIZING: JobState.RUNNING,
    Phase.STOPPING: JobState.STOPPING,
    Phase.ENDED: JobState.WAITING,
}


class StopReason(StrEnum):
    """Why an attempt is stopped, which says what becomes of its job."""

    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    HARDWARE = "hardware"
    LOST = "lost"
    MAX_RUN = "max_run"
    OUTDONE = "outdone"
    MAINTENANCE = "maintenance"
    MISPLACED = "misplaced"
    REQUEUED = "requeued"
    SCALED = "scaled_to_zero"


GOES_ON = (StopReason.HARDWARE, StopReason.LOST, StopReason.MAINTENANCE, StopReason.REQUEUED)
"""Why attempts are stopped whose jobs go on where they were, without the hardware that takes no work any more."""


@dataclass(slots=True, eq=False)
class AttemptRecord:
    """One try at running a job. `key` is its name: 4821/2; `group` is what a policy tells it apart by when it chooses
    victims. `unsaved_sizes` are the sizes that it had since its last durable step and has no more: from when on, up
    to when, and thousandths of GPUs. While it is being suspended, `keeping` is its own memory, which it keeps, and
    what its device memory takes. `ran_before_ms` is how long it ran before it was last suspended.
    """

    key: str = field(init=False)
    group: PreemptionGroup = field(init=False)
    job: Job
    number: int
    placement: Placement
    bookings: list[Booking]
    waits: bool
    phase: Phase = Phase.CLAIMED
    created_ms: int = 0
    started_ms: int = -1
    counted_ms: int = 0
    counted_gpu_ms: int = 0
    unsaved_sizes: tuple[tuple[int, int, int], ...] = ()
    standing: Key | None = None
    durable_ms: int = 0
    durable_step: int = 0
    stop_cost_ms: int = 0
    victims: tuple[str, ...] = ()
    stop_reason: StopReason | None = None
    stop_failures: int = 0
    next_seq: int = 0
    in_flight: dict[int, Action] = field(default_factory=dict)
    ceding: bool = False
    removing: Sequence[Booking] = ()
    adding: Sequence[Booking] = ()
    resize_failures: int = 0
    grow_after_ms: int = 0
    device_memory_mb: int = 0
    suspendable: bool = False
    keeping: tuple[Booking, Booking] | None = None
    ran_before_ms: int = 0

    def __post_init__(self) -> None:
        self.key = f"{self.job.id}/{self.number}"
        self.group = (self.job.priority, self.job.queue)

    @property
    def stoppable(self) -> bool:
        """Whether it may be stopped for another job at all. To stop a service whole would take its minimum from it."""
        return self.job.preemptible and self.job.kind is not Kind.SERVICE

    @property
    def is_revocable(self) -> bool:
        """Whether it runs on what guaranteed shares of devices leave."""
        return any(booking.portion is not None and booking.portion.revocable for booking in self.bookings)

    @property
    def gpus(self) -> int:
        """GPUs it holds or has claimed."""
        return sum([booking.devices.bit_count() for booking in self.bookings])

    @property
    def staying(self) -> list[Booking]:
        """Its bookings but for those of members that are leaving."""
        if not self.removing:
            return self.bookings
        return [booking for booking in self.bookings if booking not in self.removing]

    def executed_ms(self, now: int) -> int:
        """How long all its tasks have run."""
        return now - self.started_ms if self.started_ms >= 0 else 0

    def ran_ms(self, now: int) -> int:
        """How long it has run in all, with the time before it was suspended."""
        return self.ran_before_ms + self.executed_ms(now)

    @property
    def goes_on(self) -> bool:
        """Whether it was suspended and is being given devices again."""
        return self.phase is Phase.STARTING and bool(self.unsaved_sizes)

    def service_gpu_ms(self, now: int) -> int:
        """GPUs times the milliseconds they ran for it."""
        return self.counted_gpu_ms + self.gpus * (now - self.counted_ms) if self.started_ms >= 0 else 0

    def count_service(self, now: int) -> None:
        """Books the service up to now, before its size changes."""
        if self.started_ms >= 0:
            self.unsaved_sizes += ((self.counted_ms, now, self.gpu_permille),)
        self.counted_gpu_ms = self.service_gpu_ms(now)
        self.counted_ms = now

    def save(self, step: int, at_ms: int) -> None:
        """Takes note that what it had done by a moment is durable."""
        self.durable_step, self.durable_ms = step, at_ms
        self.unsaved_sizes = tuple(size for size in self.unsaved_sizes if size[1] > at_ms)

    def lost_gpu_ms(self, now: int) -> int:
        """GPU time lost if it is stopped now: all since its last durable step, plus stopping and restarting."""
        if self.phase in (Phase.CLAIMED, Phase.STARTING) and not self.goes_on:
            return 0
        running_ms = now - max(self.durable_ms, self.counted_ms) if self.started_ms >= 0 else 0
        lost = self.gpu_permille * (running_ms + self.stop_cost_ms + self.job.checkpoint.cost_ms)
        for begin_ms, end_ms, gpu_permille in self.unsaved_sizes:
            lost += gpu_permille * (end_ms - max(begin_ms, self.durable_ms))
        return lost // 1000

    def unsaved_ms(self, now: int) -> int:
        """How long it has run since its last durable step."""
        ran = ((begin_ms, end_ms) for begin_ms, end_ms, _ in self.unsaved_sizes)
        before_ms = sum(end_ms - max(begin_ms, self.durable_ms) for begin_ms, end_ms in ran)
        return before_ms + (now - max(self.durable_ms, self.counted_ms) if self.started_ms >= 0 else 0)

    @property
    def gpu_permille(self) -> int:
        """Thousandths of GPUs it holds: portions count as what they are."""
        return gpu_permille_of(self.bookings)


@dataclass(frozen=True, slots=True)
class Kept:
    """What is left of an attempt that is suspended: its number and that of the next action for it, the memory booked
    for it, and what it would lose if that were taken back.
    """

    attempt: int
    created_ms: int
    next_seq: int
    booking: Booking
    placement: Placement
    device_memory_mb: int
    unsaved_sizes: tuple[tuple[int, int, int], ...]
    durable_ms: int
    ran_ms: int


@dataclass(slots=True, eq=False)
class JobRecord:
    """One job, from its submission on. `preempted_for` is the job it was last stopped for, where that is known; `kept`
    is what is left of a suspended attempt, until it runs again. `wasted` is how many attempts in a row have crashed
    within minutes since others were preempted for it; `former` is where it was before it lost hardware, until it runs.
    """

    job: Job
    submitted_ms: int
    number: int
    asked: Job
    gpus_min: int
    shape: Hashable
    tasks: dict[str, Task]
    need: Usage
    held: bool = False
    cancelled: bool = False
    final: JobState | None = None
    parked: Reason | None = None
    array_seat: bool = False
    queued: Key | None = None
    attempt: AttemptRecord | None = None
    attempts: int = 0
    failures: int = 0
    start_failures: int = 0
    preemptions: int = 0
    wasted: int = 0
    not_before_ms: int = 0
    first_start_ms: int | None = None
    stopped_ms: int | None = None
    ended_ms: int | None = None
    end_reason: str = ""
    executed_before_ms: int = 0
    service_before_gpu_ms: int = 0
    opened: tuple[int, int] = (0, 0)
    change_ms: int = -1
    overdue: bool = False
    impatient: bool = False
    passed_ms: int | None = None
    made_way_for: tuple[str, ...] = ()
    preempted_for: str = ""
    estimate_ms: int = FOREVER_MS
    marks: dict[str, int] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    kept: Kept | None = None
    former: Placement | None = None

    @property
    def next_attempt(self) -> int:
        """The number of the attempt with which it runs next: a suspended one goes on."""
        return self.attempts + 1 if self.kept is None else self.kept.attempt

    @property
    def next_seq(self) -> int:
        """The number of the first action for that attempt."""
        return 0 if self.kept is None else self.kept.next_seq

    @property
    def gpus(self) -> int:
        """GPUs it holds; those it asks for while it is pending."""
        return self.attempt.gpus if self.attempt is not None else self.asked.gang.gpus_max

    @property
    def has_devices(self) -> bool:
        """Whether it holds devices or has a claim on some."""
        return self.attempt is not None

    @property
    def running_since_ms(self) -> int | None:
        """Since when all its tasks run; None if they do not."""
        return self.attempt.started_ms if self.attempt is not None and self.attempt.started_ms >= 0 else None

    @property
    def passed_since_ms(self) -> int:
        """Since when other jobs may pass it: its submission or begin time or, once it has started, its last stop."""
        if self.first_start_ms is not None and self.stopped_ms is not None:
            return self.stopped_ms
        return max(self.submitted_ms, self.job.begin_ms or 0)

    @property
    def saves(self) -> bool:
        """Whether it saves its work, as far as is known."""
        return self.job.checkpoint.saves or (self.attempt is not None and self.attempt.durable_step > 0)

    @property
    def suspends(self) -> bool:
        """Whether it can be suspended for another job as a whole, and so loses nothing."""
        return self.attempt is not None and self.attempt.suspendable

    @property
    def whole_gpus(self) -> bool:
        """Whether every task needs GPUs of its own."""
        return all(task.gpus and task.share is None for task in self.tasks.values())

    def executed_ms(self, now: int) -> int:
        """How long it has run, over all attempts."""
        return self.executed_before_ms + (self.attempt.executed_ms(now) if self.attempt is not None else 0)

    def service_gpu_ms(self, now: int) -> int:
        """GPUs times milliseconds it has had, over all attempts."""
        return self.service_before_gpu_ms + (self.attempt.service_gpu_ms(now) if self.attempt is not None else 0)

    @property
    def state(self) -> JobState:
        """Where the job stands."""
        if self.final is not None:
            return self.final
        if self.kept is not None and (self.attempt is None or self.attempt.phase is Phase.CLAIMED):
            return JobState.SUSPENDED
        return PHASE_STATE[self.attempt.phase] if self.attempt else JobState.WAITING


class EquivalenceClass:
    """An equivalence class: pending jobs of one shape in one queue. If the first does not fit, none does."""

    __slots__ = ("born", "jobs", "lengths_ms", "verdict")

    def __init__(self, born: int) -> None:
        self.born = born
        self.jobs: list[tuple[Key, str]] = []
        self.verdict = Reason.UNDECIDED
        self.lengths_ms: list[int] = []

    @property
    def head(self) -> tuple[Key, str]:
        """The key and id of the first."""
        return self.jobs[0]

    def add(self, key: Key, job: str) -> None:
        """Puts a job in its place: mostly the last, which is seen without a search."""
        entry = (key, job)
        if self.jobs and entry < self.jobs[-1]:
            insort(self.jobs, entry)
        else:
            self.jobs.append(entry)

    def remove(self, key: Key, job: str) -> None:
        """Takes a job out: mostly the first."""
        at = 0 if self.jobs[0][1] == job else bisect_left(self.jobs, (key, job))
        assert self.jobs[at] == (key, job), f"job {job} is not where its key says"
        del self.jobs[at]


def shape_of(job: Job, minds: Minds) -> Hashable:
    """What makes two pending jobs interchangeable for `decide`: queue and priority only where these matter."""
    return (
        _told_apart(job, minds),
        job.kind,
        job.gang,
        job.parallel,
        job.traffic,
        job.node_selector,
        job.tolerations,
        job.preemptible,
    )


def _told_apart(job: Job, minds: Minds) -> Hashable:
    if minds is Minds.QUEUES:
        return (job.queue, job.priority, *_cell_labels(job))
    return job.priority if minds is Minds.PRIORITIES else None


def form_of(record: JobRecord) -> Hashable:
    """What makes two pending jobs of whatever queues interchangeable for a search for a place."""
    assert isinstance(record.shape, tuple), "a shape is made by shape_of"
    return record.shape[1:]


def _cell_labels(job: Job) -> tuple[tuple[str, str], ...]:
    """What a job says of the cells that it wants."""
    return tuple(label for label in job.labels if label[0] in CELL_LABELS)


def tasks_of(roles: tuple[Role, ...], path: str = "") -> dict[str, Task]:
    """The task behind every path of role names."""
    found: dict[str, Task] = {}
    for role in roles:
        name = f"{path}/{role.name}" if path else role.name
        found.update(tasks_of(role.members, name) if role.members else {name: role.task})
    return found


def gpu_permille_of(bookings: Iterable[Booking]) -> int:
    """Thousandths of GPUs: portions count as what they are."""
    return sum(
        [
            booking.portion.compute_permille if booking.portion is not None else 1000 * booking.devices.bit_count()
            for booking in bookings
        ]
    )


def usage_of(bookings: Iterable[Booking]) -> Usage:
    """What bookings take in all."""
    gpu_permille = cpus_milli = memory_mb = 0
    for _, devices, needs, portion, _ in bookings:
        gpu_permille += 1000 * devices.bit_count() if portion is None else portion.compute_permille
        for number, amount in needs:
            if number == CPUS:
                cpus_milli += amount
            elif number == MEMORY:
                memory_mb += amount
    return Usage(gpu_permille, cpus_milli, memory_mb)


def estimate_ms(job: Job) -> int:
    """How long a job is expected to run: what it says, or what it may at most."""
    if job.duration_ms is not None:
        return job.duration_ms
    return job.max_run_ms if job.max_run_ms is not None else FOREVER_MS


def need_of(roles: tuple[Role, ...], replicas: int = 1) -> Usage:
    """What a gang takes at its smallest of what queues have quotas of."""
    gpu_permille = cpus_milli = memory_mb = 0
    for role in roles:
        count = replicas * role.replicas_min
        inside = need_of(role.members, count) if role.members else task_need(role.task, count)
        gpu_permille += inside.gpu_permille
        cpus_milli += inside.cpus_milli
        memory_mb += inside.memory_mb
    return Usage(gpu_permille, cpus_milli, memory_mb)


def task_need(task: Task, count: int = 1) -> Usage:
    """What so many tasks take of what queues have quotas of."""
    return Usage(count * task.gpus * share_permille(task.share), count * task.cpus_milli, count * task.memory_mb)


def gpus_needed(gang: Gang, tasks: Mapping[str, Task]) -> int:
    """Whole GPUs without which a gang cannot start: none, if its tasks share devices."""
    return 0 if any(task.share is not None for task in tasks.values()) else gang.gpus_min
