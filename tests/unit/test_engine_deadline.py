from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import World, a_job, after, everything, of_roles, virtual_backend, workers
from phalanx.cluster.cluster import Cluster, flat
from phalanx.cluster.maintenance import Maintenance
from phalanx.cluster.queues import Queue, Quota
from phalanx.engine.why.deadline import Outlook, outlook
from phalanx.protocol.event import ClusterChanged, JobHeld, JobReleased, JobSubmitted, Outcome
from phalanx.protocol.reason import Reason
from phalanx.simulate.run import Run
from phalanx.words.deadline import deadline_words
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
    free = Outlook(1 * HOUR_MS, 16 * HOUR_MS, 16 * HOUR_MS, (), True, earliest_ms=1 * HOUR_MS, obstacle=Reason.GPUS)
    assert found == free


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
        "job a does not say how long it takes (duration): whether it meets its deadline is unknown"
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
    assert said(world, "a") == Outlook(2 * HOUR_MS, 8 * HOUR_MS, 8 * HOUR_MS, (), can_be_met=True, ends_ms=2 * HOUR_MS)
    assert said(world, "b").needed_gpu_ms == 16 * HOUR_MS


def test_it_does_not_start_before_its_begin_time() -> None:
    world = World(flat(1, 8), "edf")
    world.submit(
        job("a", 4, hours=1, due=3, begin_ms=HOUR_MS), job("late", 4, hours=1, due=3, begin_ms=5 * HOUR_MS // 2)
    )
    assert said(world, "a").can_be_met
    assert deadline_words(world.state, "a") == (
        "job a can meet its deadline if it starts within 2h 0m, and it can start in 1h 0m at the earliest "
        "(4.0 of 24.0 GPU-hours until then)"
    )
    found = said(world, "late")
    assert (found.earliest_ms, found.obstacle, found.can_be_met) == (5 * HOUR_MS // 2, Reason.BEGIN_TIME, False)
    assert deadline_words(world.state, "late") == (
        "job late cannot meet its deadline: its begin time comes in 2h 30m, and it would have to start within 2h 0m"
    )


def test_it_does_not_start_before_those_it_waits_for_have_ended() -> None:
    world = World(flat(1, 8), "edf")
    world.run(job("first", 2, hours=2))
    world.submit(job("second", 2, hours=1, after=(after("first"),)))
    world.submit(job("a", 2, hours=1, due=3.5, after=(after("second"),)))
    world.submit(job("b", 2, hours=1, due=3.5, after=(after("second", "start"),)))
    found = said(world, "a")
    assert (found.earliest_ms, found.obstacle, found.can_be_met) == (3 * HOUR_MS, Reason.DEPENDENCY, False)
    assert deadline_words(world.state, "a").endswith(
        "what it waits for takes 3h 0m, and it would have to start within 2h 30m"
    )
    assert said(world, "b").earliest_ms == 2 * HOUR_MS
    assert said(world, "b").can_be_met


def test_it_does_not_start_before_those_it_waits_for_have_found_a_place_themselves() -> None:
    """prep waits for the 8 GPUs that are held for an hour, and takes half an hour then."""
    world = a_world(job("prep", 8, hours=0.5), job("a", 1, hours=0.5, due=1.9, after=(after("prep"),)))
    found = said(world, "a")
    assert (found.earliest_ms, found.obstacle, found.can_be_met) == (3 * HOUR_MS // 2, Reason.DEPENDENCY, False)
    assert deadline_words(world.state, "a").endswith(
        "what it waits for takes 1h 30m, and it would have to start within 1h 24m"
    )


def test_it_never_starts_after_an_outcome_that_did_not_come() -> None:
    world = World(flat(1, 8), "edf")
    world.run(a_job("first", 2))
    world.submit(job("second", 2, hours=1, after=(after("first"),)))
    world.submit(job("a", 2, hours=1, due=9, after=(after("second"),)))
    world.end("first", Outcome.FAILED)
    found = said(world, "a")
    assert (found.earliest_ms, found.obstacle, found.can_be_met) == (None, Reason.DEPENDENCY_FAILED, False)
    assert deadline_words(world.state, "a").endswith("an outcome it waits for did not come")


def test_a_long_chain_of_dependencies_is_followed_as_far_as_it_is_worth() -> None:
    world = World(flat(1, 8), "edf")
    chain = [job(f"j{i}", 1, hours=1, after=(after(f"j{i - 1}"),) if i else ()) for i in range(2_000)]
    world.submit(*chain[:1_999], job("a", 1, hours=1, due=9, after=(after("j1998"),)))
    assert not said(world, "a").can_be_met


def closing(*windows: tuple[str, float, float], nodes: int = 2) -> Cluster:
    """Nodes of 8 GPUs, closed from and until some hours."""
    return replace(
        flat(nodes, 8),
        maintenance=tuple(
            Maintenance(f"m{i}", (node,), int(start * HOUR_MS), int(end * HOUR_MS))
            for i, (node, start, end) in enumerate(windows)
        ),
    )


def test_it_starts_where_and_when_it_leaves_before_its_nodes_are_closed() -> None:
    world = World(closing(("n0", 1, 3), ("n1", 1.5, 2.5)), "edf")
    world.submit(job("a", 8, hours=2, due=4), job("b", 8, hours=2, due=5, begin_ms=HOUR_MS // 2))
    found = said(world, "a")
    assert (found.earliest_ms, found.obstacle, found.can_be_met) == (5 * HOUR_MS // 2, Reason.MAINTENANCE, False)
    assert deadline_words(world.state, "a") == (
        "job a cannot meet its deadline: nodes it needs are closed for maintenance, and it finds a place in 2h 30m, "
        "and it would have to start within 2h 0m"
    )
    found = said(world, "b")
    assert (found.earliest_ms, found.can_be_met) == (5 * HOUR_MS // 2, True)
    assert found.available_gpu_ms == (2 * 8 * 5 - 8 * 2 - 8 * 1) * HOUR_MS


def test_nodes_in_maintenance_are_open_again_when_it_is_over() -> None:
    world = World(closing(("n0", 1, 3), nodes=1), "edf")
    world.turn(after_ms=HOUR_MS)
    world.submit(job("a", 8, hours=1, due=5))
    before = everything(world.state)
    found = said(world, "a")
    assert (found.earliest_ms, found.obstacle, found.can_be_met) == (3 * HOUR_MS, Reason.MAINTENANCE, True)
    assert found.available_gpu_ms == 8 * 2 * HOUR_MS
    assert everything(world.state) == before


def test_who_must_leave_for_maintenance_holds_nothing_then() -> None:
    world = World(flat(2, 8), "edf")
    world.run(job("x", 8, hours=9), job("y", 8, hours=9))
    world.turn(ClusterChanged(closing(("n0", 1, 2))))
    world.submit(job("a", 8, hours=1, due=4))
    assert said(world, "a").earliest_ms == 2 * HOUR_MS


def queued(*queues: Queue) -> Cluster:
    return replace(flat(2, 8), queues=queues)


def gpus(count: float) -> Quota:
    return Quota(round(1000 * count))


def test_it_does_not_start_before_its_queue_has_room() -> None:
    world = World(queued(Queue("a", limit=gpus(8)), Queue("b")), "edf")
    world.run(job("x", 8, hours=3, queue="a"))
    world.submit(job("mine", 4, hours=1, due=2, queue="a"), job("theirs", 4, hours=1, due=2, queue="b"))
    found = said(world, "mine")
    assert (found.earliest_ms, found.obstacle, found.can_be_met) == (3 * HOUR_MS, Reason.QUOTA, False)
    assert deadline_words(world.state, "mine").endswith(
        "its queue may have so much in 3h 0m at the earliest, and it would have to start within 1h 0m"
    )
    assert deadline_words(world.state, "theirs") == (
        "job theirs meets its deadline if it takes as long as it says: it ends in 1h 0m, 1h 0m early"
    )


def test_a_limit_that_was_lowered_below_what_it_asks_for_lets_it_never_start() -> None:
    world = World(queued(Queue("a", limit=gpus(8)), Queue("b")), "edf")
    world.run(job("x", 8, hours=3, queue="a"))
    world.submit(job("mine", 8, hours=1, due=9, queue="a"))
    world.turn(ClusterChanged(queued(Queue("a", limit=gpus(6)), Queue("b"))))
    found = said(world, "mine")
    assert (found.earliest_ms, found.obstacle, found.can_be_met) == (None, Reason.QUOTA, False)
    assert deadline_words(world.state, "mine").endswith("its queue may never have so much")


def test_a_budget_that_is_used_up_or_will_be_lets_it_never_start() -> None:
    world = World(queued(Queue("a", budget_gpu_ms=20 * HOUR_MS), Queue("b", budget_gpu_ms=0)), "edf")
    world.run(job("x", 8, hours=3, queue="a"), job("y", 8, hours=3, queue="a"))
    world.submit(job("mine", 4, hours=1, due=9, queue="a"), job("none", 4, hours=1, due=9, queue="b"))
    for name in ("mine", "none"):
        found = said(world, name)
        assert (found.earliest_ms, found.obstacle, found.can_be_met) == (None, Reason.BUDGET, False)
        assert deadline_words(world.state, name).endswith("the budget of its queue is used up before it can start")


def test_who_could_never_be_on_time_for_its_begin_or_others_is_in_nobodys_way() -> None:
    world = a_world(
        job("begins", 8, hours=1, due=2, begin_ms=3 * HOUR_MS // 2),
        job("waits", 8, hours=1, due=2, after=(after("begins"),)),
        job("a", 8, hours=1, due=2.5),
    )
    assert said(world, "a").can_be_met


def test_who_could_never_be_on_time_for_maintenance_is_in_nobodys_way() -> None:
    # There is just GPU time enough for wide until 1.5 h, but n1 closes after half an hour of it.
    world = World(closing(("n1", 0.5, 1.5)), "edf")
    world.submit(of_roles("wide", workers(2, 8), duration_ms=HOUR_MS, deadline_ms=3 * HOUR_MS // 2))
    world.submit(job("a", 8, hours=0.4, due=0.45))
    before = everything(world.state)
    assert not said(world, "wide").can_be_met
    assert (said(world, "a").can_be_met, said(world, "a").endangers) == (True, ())
    assert everything(world.state) == before


def only_mine_counts(world: World) -> None:
    """All GPU time until its deadline is for job mine, in which it can be done just so."""
    found = said(world, "mine")
    assert (found.can_be_met, found.needed_gpu_ms, found.endangers) == (True, 8 * HOUR_MS, ())


def test_a_job_that_never_fits_takes_no_time_from_others() -> None:
    nowhere = job("nowhere", 8, hours=1, due=2, node_selector=(("disk", "ssd"),))
    only_mine_counts(a_world(nowhere, job("mine", 8, hours=1, due=2)))


def test_a_held_job_takes_no_time_from_others_until_it_is_released() -> None:
    world = a_world(job("held", 8, hours=1, due=2))
    world.turn(JobHeld("held"))
    world.submit(job("mine", 8, hours=1, due=2))
    only_mine_counts(world)
    world.turn(JobReleased("held"))
    assert not said(world, "mine").can_be_met


def test_a_job_beyond_the_limit_of_its_queue_takes_no_time_from_others() -> None:
    world = World(queued(Queue("a", limit=gpus(8)), Queue("b")), "edf")
    world.run(job("x", 8, hours=1, queue="b"), job("y", 8, hours=1, queue="b"))
    world.submit(job("beyond", 8, hours=1, due=2, queue="a"))
    world.turn(ClusterChanged(queued(Queue("a", limit=gpus(6)), Queue("b"))))
    world.submit(job("beside", 8, hours=0.5, due=2.5, queue="b"), job("mine", 8, hours=1, due=2, queue="b"))
    only_mine_counts(world)


def test_a_job_whose_queue_has_no_budget_left_takes_no_time_from_others() -> None:
    world = World(queued(Queue("a", budget_gpu_ms=0), Queue("b")), "edf")
    world.run(job("x", 8, hours=1, queue="b"), job("y", 8, hours=1, queue="b"))
    world.submit(job("spent", 8, hours=1, due=2, queue="a"), job("mine", 8, hours=1, due=2, queue="b"))
    only_mine_counts(world)


def test_a_job_that_waits_for_one_that_cannot_start_takes_no_time_from_others() -> None:
    world = a_world(
        job("huge", 9, hours=1),
        job("next", 8, hours=1, due=2, after=(after("huge"),)),
        job("last", 8, hours=1, due=2, after=(after("next"),)),
        job("mine", 8, hours=1, due=2),
    )
    only_mine_counts(world)


def test_whose_deadline_is_in_danger_is_said_with_its_id() -> None:
    world = a_world(job("a", 8, hours=1, due=2), job("b", 8, hours=0.5, due=1.9))
    assert deadline_words(world.state, "b").endswith("but then job a cannot")


def test_how_late_a_job_would_be_is_said_also_at_the_very_beginning_of_time() -> None:
    world = a_world(job("a", 8, hours=2, due=1.5))
    assert world.state.now == 0
    assert deadline_words(world.state, "a").endswith("even if it started now it would end 30m 0s late")


def test_of_one_that_runs_it_is_said_when_it_ends() -> None:
    world = World(flat(1, 8), "edf")
    world.run(job("a", 4, hours=1, due=2), job("b", 4, hours=3, due=2))
    world.submit(job("c", 8, hours=1), after_ms=HOUR_MS // 2)
    assert deadline_words(world.state, "a") == (
        "job a meets its deadline if it takes as long as it says: it ends in 30m 0s, 1h 0m early"
    )
    assert deadline_words(world.state, "b") == (
        "job b cannot meet its deadline: if it takes as long as it says, it ends 1h 0m late"
    )


def test_of_one_that_has_ended_it_is_said_whether_it_met_it() -> None:
    world = World(flat(1, 8), "edf")
    world.run(job("a", 4, hours=1, due=2), job("b", 4, hours=1, due=2))
    world.end("a", after_ms=HOUR_MS)
    world.end("b", after_ms=2 * HOUR_MS)
    assert outlook(world.state, world.job("a")) is None
    assert deadline_words(world.state, "a") == "job a met its deadline, 1h 0m early"
    assert deadline_words(world.state, "b") == "job b missed its deadline by 1h 0m"


def test_of_one_that_is_held_it_is_said_that_it_must_be_released() -> None:
    world = World(flat(1, 8), "edf")
    world.submit(job("a", 8, hours=1, due=2), job("first", 8, hours=1, due=1))
    world.turn(JobHeld("a"))
    assert deadline_words(world.state, "a").startswith(
        "job a can meet its deadline if it is released and starts within 1h 0m"
    )


def test_those_who_can_move_out_of_the_way_are_not_waited_for() -> None:
    world = World(flat(2, 8), "edf")
    world.run(job("gone", 5, hours=10), job("stays", 5, hours=10), job("movable", 3, hours=9))
    world.end("gone")
    world.submit(job("a", 8, hours=1, due=2))
    assert said(world, "a").earliest_ms == 9 * HOUR_MS
    world.state.policy = replace(world.state.policy, moves=lambda *_: True)
    assert said(world, "a").can_be_met


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


MORE = st.tuples(SOME, st.integers(0, 3), st.sampled_from("ab"), st.booleans())
"""The same, with the hours until a job may begin, its queue, and whether it waits for the one before."""


@given(st.lists(MORE, max_size=7), st.sampled_from(["edf", "edf:preempt=true", "phalanx", "fair"]))
@settings(max_examples=60)
def test_where_nobody_is_stopped_nobody_starts_before_the_moment_that_was_told(
    drawn: list[tuple[tuple[int, int, int, int], int, str, bool]], policy: str
) -> None:
    jobs: dict[str, tuple[int, Job]] = {}
    for i, ((at, size, hours, due), later, queue, waits) in enumerate(sorted(drawn)):
        others = (after(f"j{i - 1}"),) if waits and i else ()
        fields = {"begin_ms": (at + later) * HOUR_MS, "queue": queue, "after": others}
        jobs[f"j{i}"] = (at, job(f"j{i}", min(size, 4), hours=hours, due=at + later + due, **fields))
    cluster = replace(
        flat(2, 4),
        queues=(Queue("a", limit=gpus(5)), Queue("b", deserved=gpus(4))),
        maintenance=(Maintenance("m", ("n0",), 2 * HOUR_MS, 4 * HOUR_MS),),
    )
    backend = virtual_backend({name: each.duration_ms or 0 for name, (_, each) in jobs.items()})
    run = Run.of(cluster, policy, backend, [(at * HOUR_MS, JobSubmitted(each)) for at, each in jobs.values()])
    told: dict[str, Outlook] = {}
    while run.step() is not None:
        for name, record in run.state.jobs.items():
            found = outlook(run.state, record)
            if name not in told and found is not None:
                told[name] = found
    if any(record.preemptions for record in run.state.jobs.values()):
        # Who is stopped for a third leaves sooner than anybody could expect.
        return
    for name, found in told.items():
        record = run.state.jobs[name]
        started = record.first_start_ms is not None
        assert not (started and found.earliest_ms is None and found.obstacle is not None)
        assert not started or (record.first_start_ms or 0) >= (found.earliest_ms or 0)
