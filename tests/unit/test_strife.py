"""Jobs that stop one another for ever: such a run is refused, and the policy named; no other run is."""

from __future__ import annotations

import re

import pytest

from phalanx.cluster.cluster import flat
from phalanx.policy.guarded import PolicyError
from phalanx.policy.policy import Key, Policy, Reserve, Targets
from phalanx.policy.registry import register
from phalanx.policy.view import JobView, Moment, RunView
from phalanx.simulate import strife
from phalanx.simulate.figures.outcome import outcome
from phalanx.simulate.saved import fork
from phalanx.simulate.simulation import Setup, Simulation
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.world.costs import NO_COSTS, Costs


def who_waits_first(job: JobView, at: Moment) -> Key:
    return (int(job.has_devices), job.number)


def everybody(head: JobView, run: RunView, at: Moment) -> bool:
    return True


register("obliging", lambda parameters: Policy("obliging", victims=everybody))
register("impatient", lambda parameters: Policy("impatient", order=who_waits_first, targets=Targets.DRIFT))
register("cautious", lambda parameters: Policy("cautious", victims=everybody, reserve=Reserve.HEAD))

SOME = 300


@pytest.fixture(autouse=True)
def _soon_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes thousands of turns to be sure of takes fewer here."""
    monkeypatch.setattr(strife, "IDLE_MAX", SOME // 2)
    monkeypatch.setattr(strife, "IN_VAIN_MAX", SOME)


THREE = Trace("t", (TraceJob("a", 0, 600_000, 1), TraceJob("b", 5_000, 600_000, 4), TraceJob("c", 10_000, 600_000, 4)))


def run(policy: str, trace: Trace, costs: Costs = NO_COSTS, gpus: int = 8) -> Simulation:
    simulation = Simulation(Setup(flat(1, gpus), trace, policy, costs=costs))
    simulation.begin()
    simulation.go()
    return simulation


@pytest.mark.parametrize(
    ("policy", "costs", "times"),
    [
        ("obliging", NO_COSTS, "15."),
        ("obliging", Costs(), "15."),
        ("impatient", NO_COSTS, "15."),
        ("cautious", NO_COSTS, "15."),
    ],
)
def test_a_policy_under_which_jobs_stop_one_another_for_ever_is_refused_by_name(
    policy: str, costs: Costs, times: str
) -> None:
    told = rf"policy {policy}: job [abc] was stopped for job [abc] at [0-9.e+]+ s, .* {times} times since"
    with pytest.raises(PolicyError, match=told):
        run(policy, THREE, costs)


def test_both_jobs_and_the_moment_at_which_time_stands_still_are_named() -> None:
    with pytest.raises(PolicyError) as refused:
        run("obliging", THREE)
    found = re.search(r"job (\w) was stopped for job (\w) at (\S+) s.* since (\S+) s", str(refused.value))
    assert found is not None
    victim, head, at, since = found.groups()
    assert victim != head
    assert at == since


def test_a_fork_remembers_how_often_jobs_were_stopped_in_vain() -> None:
    simulation = Simulation(Setup(flat(1, 8), THREE, "obliging", costs=Costs()))
    simulation.begin()
    simulation.go(300_000)
    with pytest.raises(PolicyError) as here:
        fork(simulation).go()
    with pytest.raises(PolicyError) as there:
        simulation.go()
    assert str(here.value) == str(there.value)


def test_who_loses_its_work_at_the_end_of_every_turn_would_never_end() -> None:
    """Turns of an hour; a checkpoint takes longer than the grace, so each begins anew every time."""
    trace = Trace("t", tuple(TraceJob(name, 0, 5_400_000, 1, checkpoint_cost_ms=600_000) for name in "ab"))
    with pytest.raises(PolicyError, match=r"policy las: job [ab] was stopped for job [ab]"):
        run("las", trace, Costs(), gpus=1)


def test_turns_in_which_something_is_done_may_be_as_many_as_they_like() -> None:
    """Two jobs of 400 s take turns of a second each: 800 turns, and a stop at the end of all but the last ones."""
    trace = Trace("t", tuple(TraceJob(name, 0, 400_000, 1) for name in "ab"))
    summary = outcome(run("las:quantum=1", trace, gpus=1), "las").summary
    assert summary["jobs"]["completed"] == 2
    assert summary["preemptions"] == 798


def test_a_job_that_is_stopped_in_vain_whenever_another_comes_is_no_strife() -> None:
    """One of low priority needs ten seconds to start; every seventeen seconds another comes, which runs for one."""
    news = tuple(TraceJob(f"high{i}", 5_000 + i * 17_000, 1_000, 1, priority=1) for i in range(SOME + 100))
    trace = Trace("t", (TraceJob("low", 0, 60_000, 1), *news))
    simulation = run("priority", trace, Costs(start_ms=10_000, stop_ms=0), gpus=1)
    low = simulation.run.state.jobs["low"]
    assert low.preemptions > SOME
    assert low.ended_ms is not None
    assert low.ended_ms > news[-1].submit_ms
