"""Spares in virtual time: a gang that loses a node on a full site goes on at once, at the price of idle nodes."""

from __future__ import annotations

from dataclasses import replace

from builders import racked
from phalanx.cluster.recovery import Recovery
from phalanx.engine.state.journal import Journal
from phalanx.engine.turn import verify
from phalanx.faults.generate.occurrence import Occurrence, What
from phalanx.simulate.figures.outcome import outcome
from phalanx.simulate.simulation import Setup, Simulation
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.world.costs import costs_of

HOUR_MS = 3_600_000
SITE = racked(2, 4, 8)
GANGS = Trace("two gangs", tuple(TraceJob(name, 0, 10 * HOUR_MS, 24) for name in ("a", "b")))
LOST = tuple(
    Occurrence(at_h * HOUR_MS, What.NODE, (node,), "test", detect_ms=60_000, repair_ms=8 * HOUR_MS)
    for at_h, node in ((2, "n0"), (3, "n4"))
)


def run(recovery: Recovery | None, trace: Trace = GANGS, journal: Journal | None = None) -> Simulation:
    cluster = replace(SITE, recovery=recovery)
    costs = costs_of("none,start=100s,restore=50s")
    simulation = Simulation(Setup(cluster, trace, "fifo", costs=costs, occurrences=LOST, every_ms=HOUR_MS), journal)
    simulation.begin()
    simulation.go()
    return simulation


def test_gangs_go_on_at_once_on_the_spares_of_their_racks() -> None:
    journal = Journal()
    simulation = run(Recovery(1, "rack"), journal=journal)
    found = outcome(simulation, "fifo")
    assert [job.queued_s for job in found.jobs] == [0, 0]
    assert [job.nodes for job in found.jobs] == [("n3", "n1", "n2"), ("n7", "n5", "n6")], "in the ranks of the lost"
    assert verify(journal).fingerprint() == simulation.run.state.fingerprint()


def test_spares_cost_the_jobs_that_would_have_run_there() -> None:
    more = Trace("three", (*GANGS.jobs, TraceJob("c", 1, HOUR_MS, 16)))
    with_spares, without = (outcome(run(recovery, more), "fifo").jobs[2] for recovery in (Recovery(1, "rack"), None))
    assert without.queued_s == 0
    assert with_spares.queued_s > 9 * 3600, "until a gang has ended"
