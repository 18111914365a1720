"""Courses: how jobs of a journal ran, and how much work they did: time at the speed they had where they lay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from phalanx.cluster.cluster import commonest_type
from phalanx.engine.fold.apply import apply
from phalanx.engine.state.journal import Record
from phalanx.engine.state.records import AttemptRecord, Phase
from phalanx.engine.state.state import State
from phalanx.placement.placement import Placement, in_place
from phalanx.protocol.action import Action, ActionId, Resize, Stop, Suspend
from phalanx.protocol.event import (
    AttemptEnded,
    ClusterChanged,
    ClusterDefined,
    Done,
    Failed,
    JobCancelled,
    Lost,
    Progress,
)
from phalanx.protocol.plan import Plan
from phalanx.simulate.world.locality import CURVES, FLAT_CURVES
from phalanx.simulate.world.speed import SpeedModel
from phalanx.simulate.world.training import is_adaptive
from phalanx.simulate.world.virtual import WITH_NOTICE


class Pair(NamedTuple):
    """A speed, or work: as distance counts, and as if it did not, since a journal does not tell which was simulated."""

    near: float = 0.0
    flat: float = 0.0

    def plus(self, other: Pair, times: float = 1.0) -> Pair:
        """The sum with another, so many times."""
        return Pair(self.near + other.near * times, self.flat + other.flat * times)


NONE = Pair()


@dataclass(slots=True)
class Course:
    """How a job runs. `work_ms` is what its attempts up to the last have done and it did not have to do again.

    Work is time at full speed. `saved_ms` is what attempts before the present one have left to it, `kept_ms` what the
    present one has saved by being stopped with notice or moved.
    """

    work_ms: Pair = NONE
    has_run: bool = False
    cancelled_ms: int | None = None
    saved_ms: Pair = NONE
    kept_ms: Pair = NONE
    since_ms: int | None = None
    speed: Pair = NONE
    stretches: list[tuple[int, int, Pair]] = field(default_factory=list)
    begun: bool = False

    @property
    def runs(self) -> bool:
        """Whether it does work now."""
        return self.since_ms is not None

    def run(self, now: int, speed: Pair) -> None:
        """It begins to run, or goes on, at a speed."""
        self.pause(now)
        self.since_ms, self.speed = now, speed
        self.begun = self.has_run = True

    def pause(self, now: int) -> None:
        """It does nothing for now."""
        if self.since_ms is not None:
            self.stretches.append((self.since_ms, now, self.speed))
            self.since_ms = None

    def keep(self, now: int) -> None:
        """What the attempt has done is saved."""
        self.kept_ms = self._done_by(now)

    def done_ms(self, now: int) -> Pair:
        """What is done up to a moment."""
        done_ms = self.saved_ms.plus(self._done_by(now))
        return done_ms.plus(self.speed, now - self.since_ms) if self.since_ms is not None else done_ms

    def end(self, durable_ms: int, now: int) -> None:
        """The attempt is over; what it had made durable by then, or has kept, is there if another follows."""
        if not self.begun:
            return
        self.pause(now)
        # Stopping takes a while, but the user wanted no more of it from here on.
        self.work_ms = self.saved_ms.plus(self._done_by(now if self.cancelled_ms is None else self.cancelled_ms))
        self.saved_ms = self.saved_ms.plus(max(self.kept_ms, self._done_by(durable_ms)))
        self.stretches.clear()
        self.begun, self.kept_ms = False, NONE

    def _done_by(self, moment_ms: int) -> Pair:
        done_ms = NONE
        for since, until, speed in self.stretches:
            done_ms = done_ms.plus(speed, max(min(until, moment_ms) - since, 0))
        return done_ms

    def duration_ms(self, said_ms: int | None) -> int:
        """Its work as a duration. Ends fall on whole milliseconds: what its submitter said is exact where that fits."""
        if said_ms is not None:
            for work_ms, speed in zip(self.work_ms, self.speed, strict=True):
                if abs(work_ms - said_ms) <= 1 + speed:
                    return said_ms
        return round(self.work_ms.near)


@dataclass(slots=True)
class Watch:
    """Folds records and looks on."""

    state: State = field(default_factory=State)
    courses: dict[str, Course] = field(default_factory=dict)
    _models: tuple[SpeedModel, ...] = ()

    def see(self, record: Record, line: bytes) -> None:
        """Folds one record in."""
        body, now = record.body, record.now
        attempts = list(self._attempts_of(body))
        placed = {attempt.key: attempt.placement for attempt in attempts}
        # An attempt that is told to stop keeps the devices until it has; one that is told to rest leaves them at once.
        going = attempts if not isinstance(body, Plan) else [each for each in attempts if _rests(body, each)]
        beside = self._beside(going)
        apply(self.state, record, line)
        match body:
            case JobCancelled():
                self.course(body.job).cancelled_ms = now
            case ClusterDefined() | ClusterChanged():
                self._models = ()
            case Plan():
                for action in body.actions:
                    self._begin(action, placed, now)
            case _:
                for attempt in attempts:
                    self._follow(attempt, now)
        self._retime([*beside, *self._beside(going)], now)

    def course(self, job: str) -> Course:
        """How a job runs."""
        return self.courses.setdefault(job, Course())

    def _attempts_of(self, body: object) -> Iterator[AttemptRecord]:
        """The attempts that a record is about."""
        match body:
            case Done(action=action) | Failed(action=action) | Lost(action=action):
                names: Iterable[tuple[str, int]] = ((action.job, action.attempt),)
            case AttemptEnded(job=job, attempt=number):
                names = ((job, number),)
            case Progress(job=job, attempt=number) if job in self.state.jobs and is_adaptive(self.state.jobs[job].job):
                names = ((job, number),)
            case Plan(actions=actions):
                names = ((action.id.job, action.id.attempt) for action in actions)
            case _:
                return
        for name, number in names:
            attempt = self.state.attempt(name, number) if name in self.state.jobs else None
            if attempt is not None:
                yield attempt

    def _begin(self, action: Action, placed: dict[str, Placement], now: int) -> None:
        """A job stops to work when it is told to stop, to rest or to go elsewhere, not only once that is done."""
        course = self.course(action.id.job)
        if not course.runs:
            return
        match action:
            case Stop():
                course.pause(now)
                if self._is_saved(action):
                    course.keep(now)
            case Suspend():
                course.pause(now)
            case Resize():
                had = placed.get(_key(action.id))
                if had is None or in_place(had, action.placement):
                    return
                course.pause(now)
                if had.gpus == action.placement.gpus:
                    course.keep(now)
            case _:
                return

    def _is_saved(self, stop: Stop) -> bool:
        """Whether a job that is given notice saves its work: if it can, and has the time."""
        checkpoint = self.state.jobs[stop.id.job].job.checkpoint
        return stop.reason in WITH_NOTICE and checkpoint.saves and checkpoint.cost_ms <= stop.grace_ms

    def _follow(self, attempt: AttemptRecord, now: int) -> None:
        course = self.course(attempt.job.id)
        if self.state.attempt(attempt.job.id, attempt.number) is None:
            course.end(attempt.durable_ms, now)
        elif attempt.phase is Phase.RUNNING:
            course.run(now, self._speed(attempt, now))

    def _beside(self, attempts: list[AttemptRecord]) -> list[str]:
        """The jobs that share devices with attempts."""
        sharing = (
            self.state.sharing(attempt.job.id)
            for attempt in attempts
            if self.state.attempt(attempt.job.id, attempt.number) is not None
        )
        return [job for devices in sharing for holders in devices for job in holders]

    def _retime(self, jobs: list[str], now: int) -> None:
        """Jobs beside one that came or went have another speed from now on."""
        for job in dict.fromkeys(jobs):
            attempt, course = self.state.jobs[job].attempt, self.course(job)
            if attempt is not None and course.runs:
                speed = self._speed(attempt, now)
                if speed != course.speed:
                    course.run(now, speed)

    def _speed(self, attempt: AttemptRecord, now: int) -> Pair:
        """The speed of an attempt where it lies, by the models that runs in virtual time go by."""
        state = self.state
        if any(slot.node not in state.topology.number for slot in attempt.placement.slots):
            return Pair(1.0, 1.0)
        if not self._models:
            measured_on = commonest_type(state.cluster)
            self._models = tuple(
                SpeedModel(state.topology, curves, measured_on=measured_on) for curves in (CURVES, FLAT_CURVES)
            )
        done_ms = self.course(attempt.job.id).done_ms(now)
        near, flat = map(self._by, self._models, (attempt, attempt), done_ms)
        return Pair(near, flat)

    def _by(self, model: SpeedModel, attempt: AttemptRecord, done_ms: float) -> float:
        state, job, placement = self.state, attempt.job, attempt.placement
        alone = model.alone(job, placement)
        if is_adaptive(job) and job.duration_ms:
            return alone * model.adapted(job, placement, min(done_ms / job.duration_ms, 1.0))
        left = 1.0
        for holders in state.sharing(job.id):
            others = {name: portion for name, portion in holders.items() if name != job.id}
            company = [state.jobs[name].job for name in others]
            left = min(left, model.shared(job, holders[job.id], list(others.values()), company))
        return alone * left


def _rests(plan: Plan, attempt: AttemptRecord) -> bool:
    return any(isinstance(action, Suspend) and action.id.job == attempt.job.id for action in plan.actions)


def _key(action: ActionId) -> str:
    return f"{action.job}/{action.attempt}"
