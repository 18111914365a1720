from __future__ import annotations

from builders import World, starts, stops
from phalanx.cluster.cluster import Cluster, Node
from phalanx.engine.state.records import JobState
from phalanx.engine.turn import verify
from phalanx.protocol.event import Progress
from phalanx.protocol.plan import Plan
from phalanx.workload.array import members
from phalanx.workload.formats.native import read_job
from phalanx.workload.job import Job

SWEEP = "sweep: {parameters: {lr: [1, 2, 3, 4]}, halving: {metric: loss, first: 10, factor: 2}}"


def a_sweep(name: str) -> Job:
    """Four members of one GPU each."""
    return read_job(f"command: [train]\ngpus: 1\n{SWEEP}\n", "job.yaml", job_id=name)


def world(gpus: int = 2) -> World:
    made = World(Cluster((Node("n0", (), gpus),)), "fifo")
    made.done(*starts(made.submit(*members(a_sweep("7")))))
    return made


def report(world: World, member: str, step: int, **metrics: float) -> Plan:
    return world.turn(Progress(member, world.job(member).attempts, step=step, metrics=metrics))


def test_a_member_that_others_have_outdone_is_stopped_and_the_next_one_starts() -> None:
    made = world()
    assert not stops(report(made, "7.0", 10, loss=0.5))
    assert stops(report(made, "7.1", 10, loss=0.9)) == ["7.1"]
    plan = made.done("7.1")
    assert made.status("7.1") is JobState.CANCELLED
    assert made.job("7.1").end_reason == "outdone by others of its sweep"
    assert starts(plan) == ["7.2"]
    verify(made.journal)


def test_who_is_among_the_best_goes_on() -> None:
    made = world(gpus=4)
    for member, loss in (("7.0", 0.5), ("7.1", 0.4), ("7.2", 0.3)):
        assert not stops(report(made, member, 10, loss=loss))
    assert stops(report(made, "7.3", 11, loss=0.45)) == ["7.3"]


def test_a_member_that_has_diverged_is_stopped_though_nobody_has_come_as_far() -> None:
    made = world()
    plan = made.turn(Progress("7.0", 1, step=10, diverged=("loss",)))
    assert stops(plan) == ["7.0"]
    verify(made.journal)


def test_other_metrics_and_steps_before_the_first_rung_stop_nobody() -> None:
    made = world()
    report(made, "7.0", 10, loss=0.5)
    assert not stops(report(made, "7.1", 10, accuracy=0.1))
    assert not stops(report(made, "7.1", 9, loss=0.9))


def test_an_outdone_member_is_not_tried_again() -> None:
    made = world()
    report(made, "7.0", 10, loss=0.5)
    report(made, "7.1", 10, loss=0.9)
    made.done("7.1")
    assert made.job("7.1").final is JobState.CANCELLED
    assert made.job("7.1").attempts == 1


def test_two_sweeps_do_not_meet() -> None:
    made = world(gpus=6)
    report(made, "7.0", 10, loss=0.1)
    made.submit(*members(a_sweep("8")))
    made.done("8.0", "8.1")
    assert not stops(report(made, "8.0", 10, loss=0.9))
