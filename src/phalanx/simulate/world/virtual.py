"""A backend in virtual time: jobs progress at a speed, and starting, stopping and moving them takes its time.

Nothing ticks. When a job starts to run, or its speed changes, the moment of its end is worked out; if that changes
before it comes, the old moment is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil

from phalanx.cluster.device import Portion
from phalanx.placement.placement import Placement, in_place
from phalanx.protocol.action import Action, ActionId, Repartition, Resize, Resume, Start, Stop, Suspend
from phalanx.protocol.event import AttemptEnded, Done, Event, Failed, JobCancelled, Lost, Outcome, Progress
from phalanx.simulate.figures.ledger import FULL_PERMILLE, Ledger, Ran, permille_of
from phalanx.simulate.trace import Ending
from phalanx.simulate.world.breaking import STRIKES, Damage, Strike, broken_at_start, mend, started, strike
from phalanx.simulate.world.costs import NO_COSTS, Costs
from phalanx.simulate.world.life import Life
from phalanx.simulate.world.report_of import report_of
from phalanx.simulate.world.speed import NEUTRAL, SpeedModel
from phalanx.simulate.world.training import is_adaptive, next_noise
from phalanx.simulate.world.work import Work
from phalanx.workload.job import Job

Fault = Callable[[Action], Event | None]

Due = tuple[int, int, Event | Strike, int]
"""When, in which order, what, and for which version of a life."""

ENDLESS = Work(None)

ENDS = (AttemptEnded, JobCancelled)
VERSIONED = (*ENDS, Progress)

NOISE_CHANGED = -1
"""The step of a report that is not due by the clock, but because the noise of a job's gradients has changed."""

WITH_NOTICE = ("preempted", "maintenance")
"""Reasons of a stop for which a job first saves its work: what it loses otherwise is lost, or of no use any more."""


@dataclass(slots=True)
class VirtualBackend:
    """Runs jobs in virtual time.

    `works` says what each job has to do; one that is not in it, or has no duration, never ends by itself. `fault` may
    answer an action with a `Failed` or `Lost` instead of carrying it out. With `reports_ms` elastic jobs that end by
    themselves, and those that have shares of devices, say how far they are, so often; with `paces_ms` all the rest say
    once how fast they are, so long after they began to run somewhere.
    """

    works: Mapping[str, Work]
    costs: Costs = NO_COSTS
    speed: SpeedModel = NEUTRAL
    fault: Fault | None = None
    reports_ms: int | None = None
    paces_ms: int | None = None
    term: int = 0
    ledger: Ledger = field(default_factory=Ledger)
    lives: dict[str, Life] = field(default_factory=dict)
    due: list[Due] = field(default_factory=list)
    count: int = 0
    resizes: int = 0
    moves: int = 0
    sharers: dict[tuple[str, int], dict[tuple[str, int], Portion]] = field(default_factory=dict)
    resting: dict[tuple[str, int], dict[str, None]] = field(default_factory=dict)
    damage: Damage = field(default_factory=Damage)

    def carry_out(self, action: Action, now: int) -> None:
        """Takes an action on; its answer is due after its delay."""
        life = self.lives.get(action.id.job)
        if life is None:
            life = self.lives[action.id.job] = Life()
        if action.id[2:] == life.newest:
            return
        if life.broken_ms >= 0:
            mend(self, action.id.job, now)
        refusal = self._fence(action.id, life) or (self.fault(action) if self.fault is not None else None)
        if refusal is None:
            self.at(now + self._begin(life, action, now), Done(action.id))
        else:
            if isinstance(action, Start) and isinstance(refusal, Lost):
                # The caller cannot know, but here it did happen: the stop that follows must find something to stop.
                self._hold(life, action.placement, now)
            self.at(now + (self.costs.start_ms if isinstance(action, Start) else self.costs.stop_ms), refusal)

    def _fence(self, action: ActionId, life: Life) -> Event | None:
        if action.term < self.term or action.attempt < life.newest[0]:
            return Failed(action, f"term {self.term}, attempt {life.newest[0]} is newer", retryable=False)
        self.term = action.term
        life.newest = (action.attempt, action.seq)
        return None

    def _begin(self, life: Life, action: Action, now: int) -> int:
        """Begins to carry an action out; how long that takes."""
        match action:
            case Start(placement=placement):
                self._hold(life, placement, now)
                # A stop of an attempt whose start has failed may still be unanswered: it does not concern this one.
                life.next, life.leaving = placement, False
                life.starting = "start" if action.id.attempt == 1 else "restart"
                broken_at_start(self, life, now)
                return self.costs.start_ms + (self.costs.restore_ms if life.saved_ms else 0)
            case Stop():
                return self._stop(life, action, now)
            case Resize(placement=placement) if life.placement is not None and in_place(life.placement, placement):
                # No member joins or leaves: it runs on, and from now on in another way.
                life.next = placement
                return 0
            case Resize():
                self.pause(life, action.id.job, now)
                return self._resize(life, action, now)
            case Suspend(host_mb=memory_mb) if memory_mb:
                self.pause(life, action.id.job, now)
                life.next, life.leaving = None, True
                life.host_mb = memory_mb
                return _moving_ms(memory_mb, self.costs.suspend_mb_s)
            case Resume(placement=placement) if placement is not None:
                self._hold(life, placement, now)
                life.next, life.leaving = placement, False
                return _moving_ms(life.host_mb, self.costs.resume_mb_s)
            case Suspend():
                self.pause(life, action.id.job, now)
                if life.placement is not None:
                    self._rest(action.id.job, life.placement)
                    self._retime_neighbours(action.id.job, life.placement, now)
                return 0
            case Resume():
                life.next = life.placement
                return 0
            case Repartition():
                return self.costs.repartition_ms

    def _resize(self, life: Life, resize: Resize, now: int) -> int:
        """Changes a job's size, or, if it keeps that, where it is: it saves its work and loads it there."""
        placement = resize.placement
        life.next = placement
        if life.placement is None:
            return self.costs.resize_ms
        had, has = permille_of(life.placement), permille_of(placement)
        if had != has:
            self.resizes += 1
            if has > had:
                self._book(life, resize.id, now)
                self._hold(life, placement, now)
            return self.costs.resize_ms
        self.moves += 1
        self._book(life, resize.id, now)
        self._hold(life, Placement(tuple(dict.fromkeys((*life.placement.slots, *placement.slots)))), now)
        life.saved_ms, life.unsaved, life.unsaved_use = life.done_ms, 0, 0.0
        save_ms = self.works.get(resize.id.job, ENDLESS).checkpoint_cost_ms(self.costs.checkpoint_ms)
        return save_ms + self.costs.stop_ms + self.costs.start_ms + self.costs.restore_ms

    def _hold(self, life: Life, placement: Placement, now: int) -> None:
        life.placement, life.held_since_ms = placement, now
        self.ledger.hold(placement)

    def _book(self, life: Life, action: ActionId, now: int) -> None:
        if life.placement is not None:
            self.ledger.book(action.job, life.newest[0], life.placement, life.held_since_ms, now)

    def _stop(self, life: Life, stop: Stop, now: int) -> int:
        """A job that is given notice saves its work if it can and the grace suffices; the rest must be done again."""
        work = self.works.get(stop.id.job, ENDLESS)
        self.pause(life, stop.id.job, now)
        life.next, life.leaving = None, True
        checkpoint_ms = 0
        if stop.reason in WITH_NOTICE and work.saves and life.done_ms > life.saved_ms:
            checkpoint_ms = work.checkpoint_cost_ms(self.costs.checkpoint_ms)
            if checkpoint_ms <= stop.grace_ms:
                life.saved_ms, life.unsaved, life.unsaved_use = life.done_ms, 0, 0.0
        if stop.reason != "cancelled":
            self.lose(life, stop.id.job, work)
        return min(checkpoint_ms + self.costs.stop_ms, stop.grace_ms)

    def lose(self, life: Life, job: str, work: Work) -> None:
        """A job goes back to what it last saved."""
        interval_ms, unsaved_ms = work.checkpoint_interval_ms, life.done_ms - life.saved_ms
        if interval_ms:
            life.saved_ms += unsaved_ms // interval_ms * interval_ms
        lost_ms = life.done_ms - life.saved_ms
        if lost_ms and life.placement is not None:
            part = lost_ms / unsaved_ms
            self.ledger.lose(job, int(life.unsaved * part), life.unsaved_use * part)
        life.done_ms = life.saved_ms
        life.unsaved, life.unsaved_use = 0, 0.0

    def pause(self, life: Life, job: str, now: int) -> None:
        """Books what was done up to now; the job does nothing more until it is let run again."""
        if life.since_ms < 0 or life.placement is None:
            return
        life.done_ms += (now - life.since_ms) * life.speed
        computed = permille_of(life.placement) * (now - life.since_ms)
        self.ledger.compute(job, computed, computed * life.use)
        life.unsaved += computed
        life.unsaved_use += computed * life.use
        if self.ledger.runs and job in self.ledger.runs:
            self.ledger.ran(job, self._ran(life, job, now))
        life.since_ms = -1
        life.version += 1
        self._part(job, life.placement)

    def _ran(self, life: Life, job: str, now: int) -> Ran:
        """What a job has had since it was let run: the part of its GPUs or, with shares of some, of its speed."""
        work = self.works.get(job, ENDLESS)
        asked = work.job.gang.gpus_max if work.job is not None else 0
        had = permille_of(life.placement) // max(asked, 1) if life.placement is not None else 0
        return Ran(life.since_ms, now, min(max(had, int(FULL_PERMILLE * life.speed)), FULL_PERMILLE))

    def runs_of(self, job: str, now: int) -> list[Ran]:
        """When a job that is followed ran, up to now."""
        life = self.lives.get(job)
        runs = self.ledger.runs.get(job, [])
        return runs if life is None or life.since_ms < 0 else [*runs, self._ran(life, job, now)]

    def run(self, life: Life, job: str, now: int) -> None:
        """Lets a job run where it is to run, and works out when it will have ended."""
        work = self.works.get(job, ENDLESS)
        assert life.placement is not None, f"{job} has no place to run at"
        self._wake(job, life.placement)
        self._join(job, life.placement)
        life.since_ms = now
        started(self, job, now)
        life.speed = self._speed_of(job, work, life.placement)
        life.use = self._use_of(job, work, life)
        drag = self.damage.speed_left(life.placement) * work.speed_beside_saves(self.costs.checkpoint_ms)
        life.speed, life.use = life.speed * drag, life.use * drag
        life.version += 1
        if work.duration_ms is not None:
            left_ms = max(work.duration_ms - life.done_ms, 0)
            self.at(now + ceil(left_ms / life.speed), self._ending(job, life, work), life.version)
            if self.reports_ms is not None and work.job is not None and _reports(work.job, life.placement):
                life.reports_ms = self.reports_ms
                self.at(now + life.reports_ms, Progress(job, life.newest[0]), life.version)
            elif self.paces_ms is not None and work.job is not None:
                self.at(now + self.paces_ms, Progress(job, life.newest[0]), life.version)
            if work.duration_ms and work.job is not None and is_adaptive(work.job):
                self._expect_noise(life, job, work, now)

    def _expect_noise(self, life: Life, job: str, work: Work, now: int) -> None:
        """When the noise of its gradients has changed, a job that tunes its batch says so, and its speed is another."""
        assert work.duration_ms, f"{job} never ends, or as it starts"
        border = next_noise(life.done_ms / work.duration_ms)
        if border is not None:
            left_ms = border * work.duration_ms - life.done_ms
            self.at(now + ceil(left_ms / life.speed), Progress(job, life.newest[0], step=NOISE_CHANGED), life.version)

    def _speed_of(self, job: str, work: Work, placement: Placement) -> float:
        """As fast as its slowest task: by where the job lies, and what neighbours on shared devices leave it."""
        if work.job is None:
            return 1.0
        if work.duration_ms and is_adaptive(work.job):
            done = self.lives[job].done_ms / work.duration_ms
            return self.speed.alone(work.job, placement) * self.speed.adapted(work.job, placement, done)
        left = 1.0
        for slot in placement.slots:
            if slot.portion is not None:
                sharers = self.sharers[slot.node, slot.devices[0]]
                others = {other: portion for other, portion in sharers.items() if other != (job, slot.rank)}
                company = [self.works.get(other, ENDLESS).job for other, _ in others]
                left = min(left, self.speed.shared(work.job, slot.portion, list(others.values()), company))
        return self.speed.alone(work.job, placement) * left

    def _use_of(self, job: str, work: Work, life: Life) -> float:
        """The speed of a job over that at which it would run on such devices alone and near each other: at most 1, also
        for one that gets more out of its part of a device, since its neighbours leave theirs.
        """
        if work.job is None or life.placement is None or self.speed.is_at_its_best(life.placement):
            return 1.0
        full = self.speed.full(work.job, life.placement)
        if work.duration_ms and is_adaptive(work.job):
            full *= self.speed.adapted(work.job, life.placement, life.done_ms / work.duration_ms)
        return min(life.speed / full, 1.0) if full > 0 else 1.0

    def _join(self, job: str, placement: Placement) -> None:
        for slot in placement.slots:
            if slot.portion is not None:
                self.sharers.setdefault((slot.node, slot.devices[0]), {})[job, slot.rank] = slot.portion

    def _part(self, job: str, placement: Placement) -> None:
        if not self.sharers:
            return
        for slot in placement.slots:
            if slot.portion is not None:
                self.sharers.get((slot.node, slot.devices[0]), {}).pop((job, slot.rank), None)

    def _retime_neighbours(self, job: str, placement: Placement, now: int) -> None:
        """Works out anew when the jobs end that share devices with a job that came or went."""
        if not self.sharers:
            return
        neighbours: dict[str, None] = {}
        for slot in placement.slots:
            if slot.portion is not None:
                neighbours.update((other, None) for other, _ in self.sharers.get((slot.node, slot.devices[0]), {}))
        neighbours.pop(job, None)
        for other in neighbours:
            life = self.lives[other]
            if life.since_ms >= 0:
                self.pause(life, other, now)
                self.run(life, other, now)

    def _ending(self, job: str, life: Life, work: Work) -> Event:
        match work.ending:
            case Ending.COMPLETED:
                return AttemptEnded(job, life.newest[0], Outcome.SUCCEEDED)
            case Ending.FAILED:
                return AttemptEnded(job, life.newest[0], Outcome.FAILED, 1, "failed, as in the trace")
            case Ending.CANCELLED:
                return JobCancelled(job)

    def at(self, at_ms: int, event: Event | Strike, version: int = -1) -> None:
        """Has something happen at a moment, unless the life of that version is another by then."""
        heappush(self.due, (at_ms, self.count, event, version))
        self.count += 1

    def events(self, now: int) -> list[Event]:
        """What is due by now, in order."""
        happened: list[Event] = []
        due = self.due
        while due and due[0][0] <= now:
            at_ms, _, event, version = heappop(due)
            if isinstance(event, STRIKES):
                happened.extend(strike(self, event, at_ms))
                continue
            if isinstance(event, Done):
                self._done(event.action, at_ms)
            elif isinstance(event, ENDS):
                if not self._ends(event, version, at_ms):
                    continue
            elif isinstance(event, Progress):
                if self.lives[event.job].version != version:
                    continue
                event = self._report(event, version, at_ms)
            happened.append(event)
        return happened

    def _done(self, action: ActionId, now: int) -> None:
        life = self.lives[action.job]
        if action[2:] != life.newest:
            return
        if life.leaving:
            self.release(life, action, now)
        elif life.next is not None:
            self.pause(life, action.job, now)
            left = life.placement
            if left is not life.next:
                self._go_where_next(life, life.next, action, now)
            placement, life.next = life.next, None
            self.run(life, action.job, now)
            self._retime_neighbours(action.job, placement, now)
            if left is not None and left is not placement and not in_place(left, placement):
                self._retime_neighbours(action.job, left, now)

    def _go_where_next(self, life: Life, place: Placement, action: ActionId, now: int) -> None:
        if life.placement is not None and in_place(life.placement, place):
            life.placement = place
        elif life.placement != place:
            self._book(life, action, now)
            self._hold(life, place, now)

    def _ends(self, event: AttemptEnded | JobCancelled, version: int, now: int) -> bool:
        """Whether a job ends now, as was worked out when it was let run."""
        life = self.lives[event.job]
        if life.version != version:
            return False
        if isinstance(event, AttemptEnded):
            self.pause(life, event.job, now)
            life.saved_ms = life.done_ms
            self.release(life, ActionId(self.term, event.job, event.attempt, 0), now)
        return True

    def _report(self, due: Progress, version: int, now: int) -> Progress:
        """What a job says of itself, and when it will say more."""
        life, work = self.lives[due.job], self.works[due.job]
        assert life.placement is not None, f"{due.job} reports although it does not run"
        if due.step == NOISE_CHANGED:
            self.pause(life, due.job, now)
            self.run(life, due.job, now)
        elif self.reports_ms is not None:
            self._expect_report(life, work, due, version, now)
        done_ms = life.done_ms + (now - life.since_ms) * life.speed
        return report_of(work, due, life.placement, done_ms, life.speed)

    def _expect_report(self, life: Life, work: Work, due: Progress, version: int, now: int) -> None:
        """An elastic job reports again and again. One that shares devices would say the same as long as nothing
        changes: it does so ever more seldom, and not while it has its devices for itself.
        """
        assert work.job is not None, f"{due.job} is not known"
        assert life.placement is not None, f"{due.job} does not run"
        if not work.job.gang.elastic:
            if not self._has_company(life.placement):
                return
            life.reports_ms *= 2
        self.at(now + life.reports_ms, due, version)

    def _has_company(self, placement: Placement) -> bool:
        """Whether other jobs run on a job's devices, or rest there."""
        shared = _shared_devices(placement)
        return any(self.resting.get(device) or len(self.sharers[device]) > 1 for device in shared)

    def _rest(self, job: str, placement: Placement) -> None:
        for device in _shared_devices(placement):
            self.resting.setdefault(device, {})[job] = None

    def _wake(self, job: str, placement: Placement) -> None:
        if self.resting:
            for device in _shared_devices(placement):
                self.resting.get(device, {}).pop(job, None)

    def release(self, life: Life, action: ActionId, now: int) -> None:
        """A job gives back what it held."""
        started(self, action.job, now)
        self._book(life, action, now)
        placement, life.placement, life.leaving = life.placement, None, False
        if placement is not None:
            self._wake(action.job, placement)
            self._retime_neighbours(action.job, placement, now)

    def held_ms(self, job: str, now: int) -> int:
        """How long a job has held devices, over all attempts."""
        life = self.lives.get(job)
        if life is None:
            return 0
        return self.ledger.account(job).held_ms + (now - life.held_since_ms if life.placement is not None else 0)

    def present(self) -> list[tuple[str, int, Placement, int]]:
        """What each job holds at this moment: job, attempt, where, and since when."""
        return [
            (job, life.newest[0], life.placement, life.held_since_ms)
            for job, life in self.lives.items()
            if life.placement is not None
        ]

    def totals(self, now: int) -> tuple[int, int, int, float]:
        """GPU time held, computed in, lost and of use up to now, with attempts that still run."""
        held, computed, useful = self.ledger.held, self.ledger.computed, self.ledger.useful
        for life in self.lives.values():
            if life.placement is not None:
                permille = permille_of(life.placement)
                held += permille * (now - life.held_since_ms)
                computing = permille * (now - life.since_ms) if life.since_ms >= 0 else 0
                computed += computing
                useful += computing * life.use
        return held, computed, self.ledger.lost, useful

    def next_event_ms(self) -> int | None:
        """When the next event is due. Moments of ends that have become void do not count."""
        due = self.due
        # What does not depend on how fast a job runs has no version, and is never void.
        while due and due[0][3] >= 0 and self._is_void(due[0]):
            heappop(due)
        return due[0][0] if due else None

    def _is_void(self, due: Due) -> bool:
        _, _, event, version = due
        return isinstance(event, VERSIONED) and self.lives[event.job].version != version


def _moving_ms(memory_mb: int, mb_s: int) -> int:
    """How long device memory takes to the host or back; no time where it is not said how fast that is."""
    return 1000 * memory_mb // mb_s if mb_s else 0


def _reports(job: Job, placement: Placement) -> bool:
    """Whether it may matter how a job fares: it could be larger or smaller, or shares devices."""
    return job.gang.elastic or any(slot.portion is not None for slot in placement.slots)


def _shared_devices(placement: Placement) -> list[tuple[str, int]]:
    return [(slot.node, slot.devices[0]) for slot in placement.slots if slot.portion is not None]
