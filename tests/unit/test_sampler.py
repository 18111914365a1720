"""The cluster over time: what is drawn and told of it is what was, whenever something happened."""

from __future__ import annotations

from itertools import pairwise
from math import fsum

import pytest

from phalanx.cluster.cluster import Health, flat
from phalanx.engine.state.state import State
from phalanx.placement.fragmentation import fragmentation
from phalanx.protocol.event import NodeHealthChanged
from phalanx.simulate.figures import sampler as sampler_module
from phalanx.simulate.figures.outcome import outcome
from phalanx.simulate.figures.result import Result, Timeline
from phalanx.simulate.saved import fork
from phalanx.simulate.simulation import Setup, Simulation
from phalanx.simulate.studies.table import MEASURES, comparison_rows
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.traces.synthetic import Synthetic, synthesize
from phalanx.simulate.world.costs import NO_COSTS

POLICIES = ("fifo", "tiresias-las", "yarn-cs")


def begun(setup: Setup) -> Simulation:
    simulation = Simulation(setup)
    simulation.begin()
    return simulation


def a_setup(policy: str = "fifo", jobs: int = 150, seed: int = 1) -> Setup:
    return Setup(flat(8, 8), synthesize(Synthetic(jobs=jobs, gpus=64, load=0.9, shape="gavel"), seed), policy)


def followed(setup: Setup) -> tuple[Result, float]:
    """What a run says of itself, and the mean of fragmentation over time, looked at after every turn."""
    simulation = begun(setup)
    at_ms, before, total = None, 0.0, 0.0
    first_ms = setup.trace.jobs[0].submit_ms
    sampler = simulation.sampler
    assert sampler.lender is not None

    def watch(state: State) -> None:
        nonlocal at_ms, before, total
        if at_ms is not None:
            total += before * (state.now - at_ms)
        at_ms, before = state.now, fragmentation(state.fit, sampler.mix, sampler.lender)  # type: ignore[arg-type]

    simulation.go(watch=watch)
    return outcome(simulation, setup.policy), total / (simulation.now_ms - first_ms)


def mean(timeline: Timeline, values: list[float]) -> float:
    assert timeline.end_s is not None
    edges_s = [*timeline.at_s, timeline.end_s]
    spans_s = [until_s - at_s for at_s, until_s in pairwise(edges_s)]
    return fsum(value * span_s for value, span_s in zip(values, spans_s, strict=True)) / (edges_s[-1] - edges_s[0])


def test_what_happens_just_after_something_else_is_not_missed() -> None:
    """a holds 1 GPU from 0 s to 10 s, b all 8 from 10 s to 100,010 s, then c 1 from 100,100 s to 100,110 s."""
    jobs = (TraceJob("a", 0, 10_000, 1), TraceJob("b", 5_000, 100_000_000, 8), TraceJob("c", 100_100_000, 10_000, 1))
    simulation = begun(Setup(flat(1, 8), Trace("t", jobs), costs=NO_COSTS))
    simulation.go()
    result = outcome(simulation, "fifo")
    timeline = result.timeline
    assert timeline.at_s == [0, 5, 10, 100_010, 100_100]
    assert timeline.allocated == [0.125, 0.125, 1, 0, 0.125]
    assert timeline.waiting_jobs == [0, 1, 0, 0, 0]
    assert timeline.waiting_gpus == [0, 8, 0, 0, 0]
    assert timeline.end_s == 100_110


@pytest.mark.parametrize("policy", POLICIES)
def test_the_chart_says_what_the_table_says(policy: str) -> None:
    result, _ = followed(a_setup(policy))
    timeline, summary = result.timeline, result.summary
    assert mean(timeline, timeline.allocated) == pytest.approx(summary["gpu_allocated"], abs=2e-6)
    assert mean(timeline, timeline.fragmentation) == pytest.approx(summary["fragmentation"], abs=2e-6)
    queued_s = sum(job.queued_s for job in result.jobs)
    length_s = (timeline.end_s or 0.0) - timeline.at_s[0]
    assert mean(timeline, timeline.waiting_jobs) * length_s == pytest.approx(queued_s, rel=1e-3)


def test_fragmentation_of_a_short_run_is_exact_and_the_star_is_on_the_best() -> None:
    runs = [followed(a_setup(policy)) for policy in POLICIES]
    results, exact = [result for result, _ in runs], [each for _, each in runs]
    assert [result.summary["fragmentation"] for result in results] == pytest.approx(exact, abs=1e-6)
    at = next(number for number, measure in enumerate(MEASURES) if measure.key == "fragmentation")
    assert [row.cells[at].best for row in comparison_rows(results)] == [each == min(exact) for each in exact]


def test_fragmentation_of_a_long_run_is_about_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """With few stretches every run is a long one. Off by chance, now above and now below, not to one side."""
    monkeypatch.setattr(sampler_module, "STRETCHES_MAX", 200)
    runs = [followed(a_setup(policy, seed=seed)) for policy in POLICIES for seed in range(4)]
    ratios = [result.summary["fragmentation"] / exact for result, exact in runs]
    assert all(len(result.timeline.at_s) <= 200 for result, _ in runs)
    assert ratios == pytest.approx([1.0] * len(ratios), rel=0.5)
    assert fsum(ratios) / len(ratios) == pytest.approx(1.0, rel=0.08)
    for result, _ in runs:
        assert mean(result.timeline, result.timeline.allocated) == pytest.approx(
            result.summary["gpu_allocated"], abs=1e-5
        )


def test_jobs_that_come_all_at_once_make_no_endless_timeline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_module, "STRETCHES_MAX", 50)
    jobs = tuple(TraceJob(str(number), 0, 1000 + number, 1) for number in range(500))
    simulation = begun(Setup(flat(1, 4), Trace("t", jobs), costs=NO_COSTS))
    simulation.go()
    result = outcome(simulation, "fifo")
    assert 20 <= len(result.timeline.at_s) <= 51
    assert mean(result.timeline, result.timeline.allocated) == pytest.approx(result.summary["gpu_allocated"], abs=1e-5)


def test_what_lasts_until_the_moment_a_run_is_let_go_to_counts_up_to_there() -> None:
    simulation = begun(Setup(flat(1, 8), Trace("t", (TraceJob("a", 10_000, 1_000_000, 4),)), costs=NO_COSTS))
    simulation.go(until_ms=100_000)
    result = outcome(simulation, "fifo")
    assert (result.timeline.at_s, result.timeline.end_s) == ([10], 100)
    assert result.timeline.allocated == [result.summary["gpu_allocated"]] == [0.5]
    # Asking changes nothing: the run goes on from where it is.
    assert outcome(simulation, "fifo").timeline == result.timeline


def test_a_run_that_was_let_go_in_parts_has_the_timeline_of_one_in_one_go() -> None:
    whole, parts = begun(a_setup("tiresias-las")), begun(a_setup("tiresias-las"))
    whole.go()
    for part in range(1, 40):
        parts.go(until_ms=part * 7_777_777)
        outcome(parts, "tiresias-las")
    parts = fork(parts)
    parts.go()
    assert outcome(parts, "tiresias-las").timeline == outcome(whole, "tiresias-las").timeline


def test_what_happens_at_a_moment_between_turns_counts_from_there() -> None:
    """The node fails at 40 s, half a minute after the last turn; the job has nowhere to go and waits."""
    costs = NO_COSTS
    simulation = begun(Setup(flat(1, 8), Trace("t", (TraceJob("a", 10_000, 1_000_000, 4),)), costs=costs))
    simulation.go(until_ms=40_000)
    simulation.happen(NodeHealthChanged("n0", Health.FAILED, "what if"))
    simulation.go(until_ms=100_000)
    result = outcome(simulation, "fifo")
    assert mean(result.timeline, result.timeline.allocated) == pytest.approx(30 / 90 / 2, abs=1e-4)
    assert mean(result.timeline, result.timeline.waiting_jobs) == pytest.approx(60 / 90, abs=1e-4)


def test_a_fault_before_the_first_job_is_no_time_of_the_run() -> None:
    setup = Setup(
        flat(2, 4),
        Trace("t", (TraceJob("a", 100_000, 10_000, 4),)),
        costs=NO_COSTS,
        faults=((1_000, "n0", "suspect", ""), (500_000, "n0", "healthy", "")),
    )
    simulation = begun(setup)
    simulation.go()
    result = outcome(simulation, "fifo")
    assert (result.timeline.at_s[0], result.timeline.end_s) == (100, 110)
    assert mean(result.timeline, result.timeline.allocated) == result.summary["gpu_allocated"] == 0.5
