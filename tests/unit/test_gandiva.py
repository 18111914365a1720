"""Packing: when two jobs that take turns are tried at the same time, and what comes of it in virtual time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders import World, a_job
from phalanx.cluster.cluster import Cluster, Node
from phalanx.engine.fold.snapshot import dump, load
from phalanx.engine.state.journal import Journal
from phalanx.engine.state.records import JobState
from phalanx.engine.turn import replay, verify
from phalanx.protocol.action import Resize
from phalanx.protocol.event import Done, JobCancelled, PolicyChanged, Progress
from phalanx.simulate.run import Run
from phalanx.simulate.simulation import Setup, Simulation
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.world.adopt import adopted
from phalanx.simulate.world.costs import NO_COSTS
from phalanx.simulate.world.packed import KEPT
from phalanx.simulate.world.throughputs import read_throughputs
from phalanx.simulate.world.work import Work
from phalanx.workload.family import Family
from phalanx.workload.throughputs import Throughputs

HOUR_MS = 3_600_000
TURN_MS = 2162.0
"""A step of a second, on a device of which two take turns."""


def world_of(*names: str, gpus: int = 1, gpu_memory_gb: float = 0.0, policy: str = "gandiva") -> World:
    """Jobs of one GPU each that run on one node."""
    world = World(Cluster((Node("n0", (), gpus, gpu_memory_gb=gpu_memory_gb),)), policy)
    world.run(*(a_job(name) for name in names))
    return world


def report(world: World, after_ms: int = 60_000, **steps_ms: float) -> list[str]:
    """Jobs say how long a step takes; who is changed then."""
    told = [Progress(job, 1, metrics={"step_ms": step_ms}) for job, step_ms in steps_ms.items()]
    plan = world.turn(*told, after_ms=after_ms)
    return [action.id.job for action in plan.actions if isinstance(action, Resize)]


def beside(world: World, job: str) -> str:
    attempt = world.job(job).attempt
    assert attempt is not None
    assert attempt.bookings[0].portion is not None
    return attempt.bookings[0].portion.beside


def packed() -> World:
    world = world_of("a", "b")
    assert report(world, a=TURN_MS, b=TURN_MS) == ["b"]
    world.done("b")
    return world


def test_nobody_is_packed_while_gpus_are_free() -> None:
    world = world_of("a", "b", "c", "d", gpus=2)
    assert report(world, a=TURN_MS, b=TURN_MS, c=TURN_MS, d=TURN_MS) == ["c", "d"]
    world = world_of("a", "b", "c", "d", gpus=2, policy="gandiva:migrate=false")
    world.turn(JobCancelled("a"), JobCancelled("c"))
    world.done("a", "c")
    assert not report(world, b=TURN_MS, d=TURN_MS)
    world.run(a_job("e"))
    assert world.where("e") == {"n0": (0,)}
    assert report(world, b=TURN_MS, d=TURN_MS) == ["d"]


def test_memory_that_both_have_must_fit_the_device() -> None:
    needs = {"gpu_memory_gb": 45.0}
    world = World(Cluster((Node("n0", (), 1, gpu_memory_gb=80.0),)), "gandiva")
    world.run(a_job("a", task=needs), a_job("b", task=needs))
    assert not report(world, a=TURN_MS, b=TURN_MS)
    world = World(Cluster((Node("n0", (), 1, gpu_memory_gb=80.0),)), "gandiva")
    world.run(a_job("a", task=needs), a_job("b"))
    assert report(world, a=TURN_MS, b=TURN_MS) == ["b"]


def test_memory_that_a_job_says_it_has_counts_too() -> None:
    world = world_of("a", "b", gpu_memory_gb=80.0)
    told = [Progress(job, 1, memory_gb=45.0, metrics={"step_ms": TURN_MS}) for job in ("a", "b")]
    plan = world.turn(*told, after_ms=60_000)
    assert not plan.actions


def test_jobs_that_share_only_some_of_their_devices_are_not_packed() -> None:
    """wide has a turn on both GPUs, x and y on one each."""
    world = World(Cluster((Node("n0", (), 1), Node("n1", (), 1))), "gandiva")
    world.run(a_job("wide", 1, 2))
    world.run(a_job("x"), a_job("y"))
    assert [sorted(device) for device in world.state.sharing("wide")] == [["wide", "x"], ["wide", "y"]]
    assert not report(world, wide=TURN_MS, x=TURN_MS, y=TURN_MS)


def test_jobs_of_several_gpus_are_packed_on_all_of_them() -> None:
    world = World(Cluster((Node("n0", (), 2),)), "gandiva")
    world.run(a_job("a", 2), a_job("b", 2))
    assert report(world, a=TURN_MS, b=TURN_MS) == ["b"]
    attempt = world.job("b").attempt
    assert attempt is not None
    assert [booking.portion.beside for booking in attempt.bookings if booking.portion] == ["a", "a"]
    world.state.capacity.check()


def test_a_report_that_comes_too_soon_tells_of_the_time_before() -> None:
    world = world_of("a", "b")
    assert not report(world, 59_999, a=TURN_MS, b=TURN_MS)
    assert report(world, 1, a=TURN_MS, b=TURN_MS) == ["b"]


def test_when_a_third_comes_into_the_round_a_pair_is_judged_by_a_third_of_the_time() -> None:
    """In turns of three a step would take 3243 ms: the pair is better off with 3000 and 3100."""
    world = world_of("a", "b", policy="gandiva:turns=3")
    assert report(world, a=TURN_MS, b=TURN_MS) == ["b"]
    world.done("b")
    world.run(a_job("c"))
    assert not report(world, a=3000.0, b=3100.0)
    assert beside(world, "b") == "a"
    assert report(world, a=4000.0, b=4200.0) == ["b"]


def test_who_is_left_of_a_pair_is_packed_with_nobody() -> None:
    world = packed()
    plan = world.end("a")
    assert [action.id.job for action in plan.actions] == ["b"]
    world.done("b")
    assert beside(world, "b") == ""
    assert not world.state.adjustments


def test_a_change_that_fails_leaves_turns_as_they_were_and_is_tried_again_later() -> None:
    world = world_of("a", "b")
    report(world, a=TURN_MS, b=TURN_MS)
    assert beside(world, "b") == "a"
    world.failed("b")
    assert beside(world, "b") == ""
    assert not world.asked
    world.turn(after_ms=1_000)
    world.done("b")
    assert beside(world, "b") == "a"
    world.state.capacity.check()
    verify(world.journal)


def test_a_packed_job_can_be_cancelled_while_it_is_being_changed() -> None:
    world = world_of("a", "b")
    report(world, a=TURN_MS, b=TURN_MS)
    change = world.asks("b")[-1].id
    world.turn(JobCancelled("b"))
    world.turn(Done(change))
    world.done("b")
    world.end("a")
    assert world.state.capacity.free == [1]
    verify(world.journal)


def test_a_backend_that_cannot_resize_is_asked_for_nothing() -> None:
    world = world_of("a", "b")
    world.state.lacks = ("resize",)
    assert not report(world, a=TURN_MS, b=TURN_MS)


def test_what_is_known_of_pairs_is_in_the_journal_and_in_snapshots() -> None:
    world = packed()
    for state in (replay(Journal.read(list(world.journal.lines()))), load(dump(world.state))):
        assert state.memory == world.state.memory
        assert state.sharing("a") == world.state.sharing("a")


def test_under_another_policy_nobody_is_packed_anew() -> None:
    world = packed()
    world.turn(PolicyChanged("fifo"))
    assert not report(world, a=9000.0, b=9000.0)
    verify(world.journal)


def test_a_virtual_world_goes_on_from_a_state_with_packed_jobs() -> None:
    world = packed()
    works = {"a": Work(100_000), "b": Work(300_000)}
    run = Run(adopted(world.state, works, NO_COSTS), iter(()), world.state, world.journal)
    state = run.finish()
    assert [record.final for record in state.jobs.values()] == [JobState.SUCCEEDED] * 2
    assert state.capacity.free == [1]


def ends_s(policy: str, *models: str, throughputs: Throughputs | None = None) -> list[float]:
    """When jobs of an hour end that come at the same time to one V100."""
    jobs = tuple(TraceJob(f"j{i}", 0, HOUR_MS, 1, model=model) for i, model in enumerate(models))
    cluster = Cluster((Node("n0", (), 1, "V100"),))
    journal = Journal()
    setup = Setup(cluster, Trace("few", jobs), policy, costs=NO_COSTS, throughputs=throughputs)
    simulation = Simulation(setup, journal)
    simulation.begin()
    simulation.go()
    verify(Journal.read(list(journal.lines())))
    return [(record.ended_ms or 0) / 1000 for record in simulation.run.state.jobs.values()]


def test_packing_helps_models_that_get_more_done_together() -> None:
    """A recurrent model keeps 0.69 beside a transformer, and that 0.74; in turns each has 0.4625."""
    together, in_turns = ends_s("gandiva", "lstm", "bert"), ends_s("gandiva:packing=false", "lstm", "bert")
    done = 60 * 0.4625
    first = 60 + (3600 - done) / 0.74
    assert together[1] == pytest.approx(first, abs=0.01)
    assert together[0] == pytest.approx(first + 3600 - done - (first - 60) * 0.69, abs=0.01)
    assert max(in_turns) == pytest.approx(3600 / 0.4625, abs=0.01)


@pytest.mark.parametrize("nodes", [1, 2])
def test_who_takes_turns_moves_to_a_gpu_that_comes_free_and_both_are_as_fast_as_alone(nodes: int) -> None:
    """Two GPUs, on one node or on two. b ends after 100 s; from then on a and c need not take turns."""
    lengths = {"a": 10 * HOUR_MS, "b": 100_000, "c": 10 * HOUR_MS}
    jobs = tuple(TraceJob(name, 0, length_ms, 1) for name, length_ms in lengths.items())
    cluster = Cluster(tuple(Node(f"n{i}", (), 2 // nodes, "V100") for i in range(nodes)))
    simulation = Simulation(Setup(cluster, Trace("three", jobs), "gandiva", costs=NO_COSTS))
    simulation.begin()
    simulation.go()
    ends_ms = {name: record.ended_ms or 0 for name, record in simulation.run.state.jobs.items()}
    assert simulation.backend.moves == 1
    assert 10 * HOUR_MS < ends_ms["a"] < 10 * HOUR_MS + 200_000
    assert 10 * HOUR_MS < ends_ms["c"] < 10 * HOUR_MS + 200_000


@pytest.mark.parametrize(("movable", "moved"), [(True, ["c"]), (False, [])])
def test_of_those_who_take_turns_the_last_to_come_moves_if_it_lets_itself_be_moved(
    movable: bool, moved: list[str]
) -> None:
    world = World(Cluster((Node("n0", (), 2),)), "gandiva")
    world.run(*(a_job(name, movable=movable) for name in ("a", "b", "c")))
    world.turn(JobCancelled("b"))
    plan = world.done("b")
    assert [action.id.job for action in plan.actions if isinstance(action, Resize)] == moved
    world.done(*moved)
    assert world.where("c") == {"n0": (1 if movable else 0,)}


def test_packing_is_undone_for_models_that_get_less_done_together() -> None:
    """Two recommendation models keep 0.29 each, in turns 0.45: they lose by two trials of a minute, no more."""
    together, in_turns = ends_s("gandiva", "dlrm", "dlrm"), ends_s("gandiva:packing=false", "dlrm", "dlrm")
    assert max(in_turns) < max(together) < max(in_turns) + 3 * 60


def test_measured_pairs_go_before_what_is_known_of_their_families(tmp_path: Path) -> None:
    """By the file two of these get nothing done in turns that they would not get done at the same time."""
    one, other = "('DLRM (batch size 64)', 1)", "('NCF (batch size 64)', 1)"
    told = {
        "v100": {
            one: {"null": 10.0, one: [1.0, 1.0], other: [9.0, 16.0]},
            other: {"null": 20.0, one: [16.0, 9.0], other: [0.0, 0.0]},
        }
    }
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps(told))
    throughputs = read_throughputs(str(path))
    assert throughputs.kept("V100", "dlrm (batch size 64)", "ncf (batch size 64)") == pytest.approx(0.9)
    assert throughputs.kept("V100", "ncf (batch size 64)", "ncf (batch size 64)") is None
    models = ("dlrm (batch size 64)", "ncf (batch size 64)")
    measured, by_family = ends_s("gandiva", *models, throughputs=throughputs), ends_s("gandiva", *models)
    assert max(measured) < 5000 < 8000 < max(by_family)


def test_the_page_on_virtual_time_tells_what_is_kept_of_every_pair() -> None:
    page = (Path(__file__).parents[2] / "docs" / "concepts" / "virtual-time.md").read_text()
    table = page.partition("**At the same time.**")[2].partition("Derived from")[0].strip().splitlines()
    rows = [[field.strip() for field in line.strip("|").split("|")] for line in table if line.startswith("|")]
    families = rows[0][1:]
    told = {
        (Family(row[0]), Family(other)): float(value)
        for row in rows[2:]
        for other, value in zip(families, row[1:], strict=True)
    }
    assert told == KEPT
