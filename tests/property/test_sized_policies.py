"""Policies that set the sizes of elastic jobs, under random interleavings: all that must hold of the engine holds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule
from test_engine_properties import RankingEngine, devices_of, workloads

from builders import everything, random_run, virtual_backend
from phalanx.engine.action import Resize
from phalanx.engine.event import ClusterDefined, Progress
from phalanx.engine.journal import Journal, Record
from phalanx.engine.records import JobState
from phalanx.engine.turn import replay, verify
from phalanx.placement.gang import GangTrial
from phalanx.placement.placement import Placement
from phalanx.simulate.run import Run, submissions
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


TestGathering = GatheringEngine.TestCase
TestOptimus = OptimusEngine.TestCase
TestPollux = PolluxEngine.TestCase
TestGathering.settings = settings(max_examples=10, stateful_step_count=30)
TestOptimus.settings = TestPollux.settings = settings(max_examples=6, stateful_step_count=30)


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


@pytest.mark.parametrize("policy", SIZING)
def test_a_long_run_with_failing_starts_and_nodes_is_told_whole_by_its_journal(policy: str) -> None:
    run = random_run(3, 200, policy)
    read = Journal.read(list(run.journal.lines()))
    assert everything(verify(read)) == everything(run.state)
    assert all(each.state.final or run.state.reason(name) for name, each in run.state.jobs.items())
