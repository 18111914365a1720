"""Policies that set the sizes of elastic jobs, under random interleavings: all that must hold of the engine holds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from test_engine_properties import RankingEngine, devices_of, workloads

from builders import a_job, everything, random_run, virtual_backend
from judge import where
from phalanx.cluster.device import Portion
from phalanx.engine.state.journal import Journal, Record
from phalanx.engine.state.records import AttemptRecord, JobState, Phase
from phalanx.engine.turn import replay, verify
from phalanx.placement.gang import GangTrial
from phalanx.placement.placement import Placement
from phalanx.protocol.action import Resize
from phalanx.protocol.event import ClusterDefined, JobSubmitted, Progress
from phalanx.simulate.run import Run, submissions
from phalanx.workload.job import Job
from strategies import CLUSTERS

SIZING = (
    *("antman", "antman:quota=default:2,throttle=false"),
    *("gandiva", "gandiva:turns=1,threshold=10"),
    *("optimus:interval=2", "pollux:interval=2", "pollux:interval=3,p=1"),
)
ODD = st.sampled_from([-1.0, 0.0, 1e-12, 0.5, 3.0, 1e12])


class SizingEngine(RankingEngine):
    """Running jobs also report, sensibly or not."""

    @rule(number=st.integers(0, 1_000), step=st.integers(0, 10_000), values=st.lists(ODD, min_size=6, max_size=6))
    def report(self, number: int, step: int, values: list[float]) -> None:
        attempts = list(self.state.attempts())
        if attempts:
            attempt = attempts[number % len(attempts)]
            names = ("loss", "epoch_steps", "epoch_drop", "step_ms", "workers", "noise_scale")
            told = Progress(attempt.job.id, attempt.number, step, metrics=dict(zip(names, values, strict=True)))
            self.happen(told, then_decide=True)


class OptimusEngine(SizingEngine):
    policy = "optimus:interval=2"


class PolluxEngine(SizingEngine):
    policy = "pollux:interval=2"


class GatheringEngine(SizingEngine):
    """Jobs gather on nodes: those of their tasks that are there stay."""

    policy = "gandiva:turns=1,threshold=10"

    def resize(self, action: Resize) -> None:
        attempt = self.state.attempt(action.id.job, action.id.attempt)
        assert attempt is not None
        self.judge.check_placement(attempt.job, action.placement)
        old = attempt.placement.slots
        new = [slot for slot in action.placement.slots if slot not in old]
        self.judge.check_open(Placement(tuple(new)))
        if len(old) == len(action.placement.slots):
            assert len({slot.node for slot in action.placement.slots}) == 1, "it does not gather"
            assert not devices_of(Placement(tuple(new))) & devices_of(attempt.placement)
        self.judge.resizes[attempt.key] = action.placement
        self.occupy(action.id, self.present[attempt.key] | devices_of(action.placement))


class SharingEngine(GatheringEngine):
    """Jobs share devices, and what their shares are worth changes where they are."""

    def placed(self, job: str) -> Job:
        return self.state.jobs[job].asked

    @rule(count=st.integers(8, 20), priority=st.sampled_from([0, 0, -1]))
    def many_come(self, count: int, priority: int) -> None:
        """More than there are GPUs."""
        for _ in range(count):
            self.submitted += 1
            self.happen(JobSubmitted(a_job(f"m{self.submitted}", priority=priority)), then_decide=False)
        self.all_goes_well()
        self.all_goes_well()

    @rule(steps_ms=st.lists(st.sampled_from([500.0, 1000.0, 1030.0, 2000.0, 4000.0]), min_size=1, max_size=6))
    def all_report(self, steps_ms: list[float]) -> None:
        """After a while in which nothing else happens everybody says how long a step takes."""
        self.now += 1_500
        for i, attempt in enumerate(list(self.state.attempts())):
            told = {"step_ms": steps_ms[i % len(steps_ms)]}
            self.happen(Progress(attempt.job.id, attempt.number, metrics=told), then_decide=False)
        self.decide()

    def resize(self, action: Resize) -> None:
        attempt = self.state.attempt(action.id.job, action.id.attempt)
        assert attempt is not None
        if where(attempt.placement) != where(action.placement):
            self.move(action, attempt)
            return
        for was, will_be in zip(attempt.placement.slots, action.placement.slots, strict=True):
            assert was.portion is not None
            assert will_be.portion is not None
            self.check_change(was.portion, will_be.portion)
        self.judge.resizes[attempt.key] = action.placement

    def move(self, action: Resize, attempt: AttemptRecord) -> None:
        super().resize(action)

    def check_change(self, was: Portion, will_be: Portion) -> None:
        """Nothing is different that anybody else could have."""
        raise NotImplementedError


class PackingEngine(SharingEngine):
    """Jobs that take turns are packed in pairs, and not with anybody who is not there."""

    policy = "gandiva:interval=1,retry=30"

    def check_change(self, was: Portion, will_be: Portion) -> None:
        assert replace(was, beside="") == replace(will_be, beside="")
        assert was.beside != will_be.beside

    @invariant()
    def they_are_pairs(self) -> None:
        if not hasattr(self, "state"):
            return
        for attempt in self.state.attempts():
            named = {booking.portion.beside for booking in attempt.bookings if booking.portion} - {""}
            assert len(named) <= 1, f"{attempt.key} is packed with {named}"
            for beside in named:
                other = self.state.jobs[beside].attempt
                both = {(booking.node, booking.devices) for booking in attempt.bookings}
                if other is None or {(booking.node, booking.devices) for booking in other.bookings} != both:
                    # Who is packed with one who has left is told so with the next event.
                    continue
                assert not any(each.portion.beside for each in other.bookings if each.portion), f"{beside} is of two"


class ThrottlingEngine(SharingEngine):
    """Opportunistic jobs are given more or less of devices; guaranteed ones keep what they have."""

    policy = "antman:quota=default:2,interval=1,retry=30"

    def check_change(self, was: Portion, will_be: Portion) -> None:
        assert was.revocable
        assert replace(was, compute_permille=1000) == replace(will_be, compute_permille=1000)

    def move(self, action: Resize, attempt: AttemptRecord) -> None:
        """An elastic job grows or shrinks; another is promoted."""
        slots = action.placement.slots
        self.judge.check_placement(attempt.job, action.placement)
        if attempt.job.gang.elastic:
            assert set(attempt.placement.slots) < set(slots) or set(slots) < set(attempt.placement.slots)
        else:
            assert not any(slot.portion.revocable for slot in slots if slot.portion)
        self.judge.resizes[attempt.key] = action.placement
        self.occupy(action.id, self.present[attempt.key] | devices_of(action.placement))

    @invariant()
    def who_is_guaranteed_is_never_held_back(self) -> None:
        if not hasattr(self, "state"):
            return
        for attempt in self.state.attempts():
            resting = attempt.phase in (Phase.SUSPENDING, Phase.SUSPENDED, Phase.RESUMING)
            assert attempt.is_revocable or not resting, f"{attempt.key} is {attempt.phase}"


TestThrottling = ThrottlingEngine.TestCase
TestPacking = PackingEngine.TestCase
TestPacking.settings = TestThrottling.settings = settings(max_examples=8, stateful_step_count=30)
TestGathering = GatheringEngine.TestCase
TestOptimus = OptimusEngine.TestCase
TestPollux = PolluxEngine.TestCase
TestGathering.settings = settings(max_examples=10, stateful_step_count=30)
TestOptimus.settings = TestPollux.settings = settings(max_examples=6, stateful_step_count=30)
for each in (TestThrottling, TestPacking, TestGathering):
    pytest.mark.long(each)


@given(st.data(), st.sampled_from(sorted(CLUSTERS)), st.sampled_from(SIZING))
@settings(max_examples=20)
def test_every_job_that_can_ever_fit_ends_when_nothing_fails(data: st.DataObject, name: str, policy: str) -> None:
    cluster = CLUSTERS[name]()
    work = data.draw(workloads(cluster))
    backend = virtual_backend({job.id: 1_000 + 700 * i for i, (_, job) in enumerate(work)}, start_ms=300, stop_ms=200)
    state = Run.of(cluster, policy, backend, submissions(work)).finish(steps_max=5_000)
    idle = replay(Journal([Record(0, 0, ClusterDefined(cluster, policy))]))
    for each in state.jobs.values():
        trial = GangTrial(idle.fit, idle.packing, each.job)
        assert each.state is JobState.SUCCEEDED or not trial.seat(), f"{each.job.id} is {each.state}"
        trial.undo()


@pytest.mark.long
@pytest.mark.parametrize("policy", SIZING)
def test_a_long_run_with_failing_starts_and_nodes_is_told_whole_by_its_journal(policy: str) -> None:
    run = random_run(3, 200, policy)
    read = Journal.read(list(run.journal.lines()))
    assert everything(verify(read)) == everything(run.state)
    assert all(each.state.final or run.state.reason(name) for name, each in run.state.jobs.items())
