from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import World, a_job, everything, virtual_backend
from phalanx.cluster.cluster import flat
from phalanx.engine.deadline import Outlook, outlook
from phalanx.engine.event import JobSubmitted
from phalanx.simulate.run import Run
from phalanx.words import deadline_words
from phalanx.workload.job import Job

HOUR_MS = 3_600_000


def job(name: str, gpus: int, hours: float, due: float | None = None, **fields: object) -> Job:
    deadline_ms = None if due is None else int(due * HOUR_MS)
    return a_job(name, gpus, duration_ms=int(hours * HOUR_MS), deadline_ms=deadline_ms, **fields)


def said(world: World, name: str) -> Outlook:
    found = outlook(world.state, world.job(name))
    assert found is not None
    return found


def a_world(*jobs: Job, policy: str = "edf") -> World:
    """Eight GPUs, all of which are held for an hour."""
    world = World(flat(1, 8), policy)
    world.run(job("first", 8, hours=1))
    world.submit(*jobs)
    return world


def test_a_job_without_a_deadline_has_no_outlook() -> None:
    world = a_world(job("a", 1, hours=1))
    assert outlook(world.state, world.job("a")) is None


def test_a_deadline_can_be_met_while_there_is_gpu_time_for_it() -> None:
    found = said(a_world(job("a", 8, hours=2, due=3)), "a")
    assert found == Outlook(1 * HOUR_MS, 16 * HOUR_MS, 16 * HOUR_MS, (), True, earliest_ms=1 * HOUR_MS)


def test_it_cannot_if_even_alone_the_job_would_take_longer() -> None:
    found = said(a_world(job("a", 1, hours=4, due=3)), "a")
    assert not found.can_be_met
    assert found.start_by_ms == -1 * HOUR_MS


def test_it_cannot_if_who_is_due_before_leaves_too_little() -> None:
    world = a_world(job("early", 8, hours=1, due=2), job("late", 8, hours=1, due=2.5))
    assert said(world, "early").can_be_met
    found = said(world, "late")
    assert not found.can_be_met
    assert (found.needed_gpu_ms, found.available_gpu_ms) == (16 * HOUR_MS, 12 * HOUR_MS)


def test_who_is_due_later_is_endangered_not_in_the_way() -> None:
    world = a_world(job("later", 8, hours=2, due=3), job("urgent", 8, hours=1, due=2))
    found = said(world, "urgent")
    assert found.can_be_met
    assert found.endangers == ("later",)


def test_who_cannot_be_on_time_any_more_is_in_nobodys_way() -> None:
    world = a_world(job("hopeless", 8, hours=5, due=2), job("a", 8, hours=1, due=2.5))
    assert said(world, "a").can_be_met


def test_where_those_who_run_can_be_stopped_they_hold_nothing() -> None:
    assert not said(a_world(job("a", 8, hours=2, due=2.5)), "a").can_be_met
    assert said(a_world(job("a", 8, hours=2, due=2.5), policy="edf:preempt=true"), "a").can_be_met


def test_of_a_length_that_is_not_said_the_best_is_assumed() -> None:
    world = World(flat(1, 8), "edf")
    world.run(a_job("endless", 8))
    world.submit(job("a", 8, hours=1, due=1))
    assert said(world, "a").can_be_met


def busy_nodes() -> World:
    """Two nodes of 8 GPUs, each with 5 of them held for ten hours."""
    world = World(flat(2, 8), "edf")
    world.run(job("x", 5, hours=10), job("y", 5, hours=10))
    return world


def test_gpu_time_on_nodes_that_are_too_full_is_of_no_use() -> None:
    world = busy_nodes()
    world.submit(job("a", 6, hours=0.5, due=2))
    found = said(world, "a")
    assert found.available_gpu_ms > found.needed_gpu_ms
    assert found.earliest_ms == 10 * HOUR_MS
    assert not found.can_be_met
    assert deadline_words(world.state, "a") == (
        "job a cannot meet its deadline: what it needs is free together in 10h 0m at the earliest, "
        "and it would have to start within 1h 30m"
    )


def test_asking_leaves_the_state_as_it_was() -> None:
    world = busy_nodes()
    world.submit(job("a", 6, hours=0.5, due=2))
    before = everything(world.state)
    said(world, "a")
    assert everything(world.state) == before


def test_what_is_free_now_can_be_had_now() -> None:
    world = busy_nodes()
    world.submit(job("b", 8, hours=1, due=5), job("a", 3, hours=0.5, due=2))
    assert said(world, "b").earliest_ms == 10 * HOUR_MS
    assert said(world, "a").can_be_met


def test_of_a_job_that_says_no_length_nothing_is_promised() -> None:
    world = busy_nodes()
    world.submit(a_job("a", 6, deadline_ms=2 * HOUR_MS))
    assert not said(world, "a").length_known
    assert deadline_words(world.state, "a") == (
        "job a does not say how long it takes (duration): nobody knows whether it meets its deadline"
    )


def test_a_job_that_never_fits_meets_no_deadline() -> None:
    world = busy_nodes()
    world.submit(job("a", 9, hours=0.5, due=9))
    assert not said(world, "a").can_be_met
    assert deadline_words(world.state, "a").endswith("no part of this cluster could ever hold it")


def test_what_has_run_already_counts() -> None:
    world = World(flat(1, 8), "edf")
    world.run(job("a", 8, hours=2, due=2))
    world.submit(job("b", 8, hours=1, due=3), after_ms=HOUR_MS)
    assert said(world, "a") == Outlook(2 * HOUR_MS, 8 * HOUR_MS, 8 * HOUR_MS, (), can_be_met=True)
    assert said(world, "b").needed_gpu_ms == 16 * HOUR_MS


SOME = st.tuples(st.integers(0, 4), st.integers(1, 8), st.integers(1, 4), st.integers(1, 6))
"""When a job comes, its GPUs, how long it takes, and when it is due: in hours from when it comes."""


@given(st.lists(SOME, max_size=9), st.booleans())
@settings(max_examples=60)
def test_where_all_who_are_due_by_then_are_on_time_nobody_was_told_he_could_not(
    drawn: list[tuple[int, int, int, int]], preempt: bool
) -> None:
    jobs = {
        f"j{i}": (at, job(f"j{i}", gpus, hours=hours, due=at + due))
        for i, (at, gpus, hours, due) in enumerate(sorted(drawn))
    }
    backend = virtual_backend({name: each.duration_ms or 0 for name, (_, each) in jobs.items()})
    arrivals = [(at * HOUR_MS, JobSubmitted(each)) for at, each in jobs.values()]
    run = Run.of(flat(1, 8), "edf:preempt=true" if preempt else "edf", backend, arrivals)
    told: dict[str, bool] = {}
    while run.step() is not None:
        for name, record in run.state.jobs.items():
            if name not in told:
                found = outlook(run.state, record)
                assert found is not None
                told[name] = found.can_be_met
    for name, can_be_met in told.items():
        at, mine = jobs[name]
        due_before = [
            other
            for other, (came, each) in jobs.items()
            if came <= at and (each.deadline_ms or 0) <= (mine.deadline_ms or 0)
        ]
        on_time = all(
            (run.state.jobs[other].ended_ms or 0) <= (jobs[other][1].deadline_ms or 0) for other in due_before
        )
        assert can_be_met or not on_time
