"""What jobs in virtual time report, and what policies make of it."""

from __future__ import annotations

import pytest

from builders import World, a_job, of_roles, workers
from phalanx.cluster.cluster import Cluster, Node
from phalanx.engine.state.journal import Journal
from phalanx.placement.placement import Placement, Slot
from phalanx.policy.optimus import all_reduce, coefficients
from phalanx.protocol.event import Progress
from phalanx.simulate.simulation import Setup, Simulation
from phalanx.simulate.trace import Ending, Trace, TraceJob
from phalanx.simulate.world.speed import served
from phalanx.simulate.world.training import training_of
from phalanx.simulate.world.work import Work
from phalanx.workload.gang import Role, Task

HOUR_MS = 3_600_000


def reports(policy: str) -> list[Progress]:
    cluster = Cluster((Node("n0", (), 4),))
    trace = Trace("one", (TraceJob("a", 0, HOUR_MS, 2, min_gpus=1, max_gpus=4),))
    journal = Journal()
    simulation = Simulation(Setup(cluster, trace, policy), journal)
    simulation.begin()
    simulation.go()
    return [each.body for each in journal.records if isinstance(each.body, Progress)]


def test_jobs_report_only_to_policies_that_ask() -> None:
    assert not reports("fifo")
    assert len(reports("optimus")) > 20


def test_reports_tell_of_falling_losses_and_the_size_of_the_job() -> None:
    told = reports("optimus")
    assert told[0].metrics["loss"] > told[-1].metrics["loss"] > 0
    assert [each.step for each in told] == sorted(each.step for each in told)
    assert {each.metrics["workers"] for each in told} == {4.0}


def test_a_training_converges_when_its_duration_is_over() -> None:
    training = training_of(a_job("a"), Work(HOUR_MS))
    assert training.loss(training.steps) - training.loss(training.steps + training.epoch_steps) == training.epoch_drop
    earlier = training.steps - training.epoch_steps
    assert training.loss(earlier) - training.loss(training.steps) > training.epoch_drop


def test_a_job_that_fails_does_not_converge() -> None:
    training = training_of(a_job("a"), Work(HOUR_MS, Ending.FAILED))
    assert training.loss(0) == training.loss(1e9)


def test_the_pace_at_another_size_follows_from_what_was_measured() -> None:
    paces = {(w, 0, 1): 1000 / w**0.9 for w in (1, 2, 8)}
    assert foretold(paces, 4, apart=False) == pytest.approx(1000 / 4**0.9, rel=0.1)


def test_what_a_job_loses_by_lying_apart_is_told_from_what_its_size_does() -> None:
    paces = {(1, 0, 1): 1000.0, (2, 0, 2): 1000.0, (4, 0, 3): 500.0}
    assert foretold(paces, 2, apart=False) == pytest.approx(500, rel=0.1)
    assert foretold(paces, 8, apart=True) == pytest.approx(250, rel=0.1)
    assert foretold({(16, 0, 2): 100.0, (32, 0, 4): 50.0}, 64, apart=False) == pytest.approx(25, rel=0.1)


def foretold(paces: dict[tuple[int, int, int], float], workers: int, apart: bool) -> float:
    """The time of a step with so many workers, where 8 fit a node."""
    return sum(a * b for a, b in zip(coefficients(paces, all_reduce, 8), all_reduce(workers, 0, apart), strict=True))


def test_fewer_servers_for_each_worker_make_a_step_longer() -> None:
    job = of_roles("a", workers((1, 4)), Role("server", 1, 2))
    slots = [Slot(i, "worker", "n0", (i,)) for i in range(4)]
    servers = [Slot(4 + i, "server", "n0") for i in range(2)]
    assert served(job, Placement((*slots, *servers))) == 1.0
    assert served(job, Placement((*slots, servers[0]))) == pytest.approx(1 / 1.3)


def test_a_job_whose_servers_are_what_it_waits_for_gets_more_of_them() -> None:
    world = World(Cluster((Node("n0", (), 4, cpus_milli=16_000),)), "optimus")
    servers = Role("server", 1, 4, Task(cpus_milli=2_000))
    world.submit(of_roles("a", workers((1, 4)), servers))
    world.done("a")
    for sizes, step_ms in (((1, 1), 1100.0), ((2, 1), 2100.0), ((2, 2), 1100.0), ((4, 1), 4100.0)):
        metrics = {"step_ms": step_ms, "workers": float(sizes[0]), "servers": float(sizes[1])}
        world.turn(Progress("a", 1, 100, metrics=metrics))
    world.turn(after_ms=600_000)
    sizes_now = world.job("a").sizes
    assert sizes_now["server"] > sizes_now["worker"]
