"""yarn-cs: shares of queues, what they lend and get back, and gangs that spread after a while."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import World, a_job, starts, stops, virtual_backend
from phalanx.cluster.cluster import flat
from phalanx.policy.registry import policy
from phalanx.policy.yarn_cs import shares_of
from phalanx.protocol.event import JobHeld, JobReleased
from phalanx.simulate.run import Run, submissions
from phalanx.workload.job import Job

HALVES = "yarn-cs:shares=a:0.5/b:0.5"


def of(queue: str, name: str, gpus: int = 1, count: int | tuple[int, int] = 1, **job: object) -> Job:
    return a_job(name, gpus, count, queue=queue, **job)


def lent(policy: str = HALVES, jobs: int = 8) -> World:
    """8 GPUs on one node, all of which jobs b0, b1, … of queue b have, of which b7 has run the shortest."""
    world = World(flat(1, 8), policy)
    for i in range(jobs):
        world.run(of("b", f"b{i}"), after_ms=1_000)
    world.turn(after_ms=1_000)
    return world


def test_the_queue_that_uses_least_of_its_share_goes_first() -> None:
    world = World(flat(1, 8), "yarn-cs:shares=a:0.75/b:0.25")
    plan = world.submit(*(of("b", f"b{i}") for i in range(8)), *(of("a", f"a{i}") for i in range(8)))
    assert sum(name.startswith("a") for name in starts(plan)) == 6


def test_in_a_queue_it_is_first_come_first_served() -> None:
    world = World(flat(1, 2), "yarn-cs")
    assert starts(world.submit(of("a", "z"), of("a", "y", priority=9), of("a", "x"))) == ["z", "y"]


def test_a_queue_may_take_more_than_its_share_while_others_are_idle() -> None:
    assert lent().state.usage("b").gpu_permille == 8_000


def test_an_owner_gets_its_share_back_and_no_more() -> None:
    world = lent()
    assert stops(world.submit(*(of("a", f"a{i}") for i in range(6)))) == ["b7", "b6", "b5", "b4"]
    assert world.state.usage("b").gpu_permille == 4_000


def test_nobody_is_stopped_for_a_job_beyond_its_queues_share() -> None:
    assert not stops(lent().submit(of("a", "large", 5)))
    assert len(stops(lent().submit(of("a", "just", 4)))) == 4


def test_no_queue_is_cut_below_its_share_even_by_one_large_victim() -> None:
    world = World(flat(1, 8), HALVES)
    world.run(of("b", "large", 6))
    world.run(of("b", "small", 2), after_ms=60_000)
    assert stops(world.submit(of("a", "one"), after_ms=1_000)) == ["small"], "large would leave 2 of 4"
    world = World(flat(1, 8), HALVES)
    world.run(of("b", "large", 6), of("b", "fixed", 2, preemptible=False))
    assert not stops(world.submit(of("a", "one")))


def test_victims_of_several_queues_are_taken_of_each_down_to_its_share() -> None:
    world = World(flat(1, 8), "yarn-cs:shares=a:0.5/b:0.25/c:0.25")
    world.run(*(of("b", f"b{i}") for i in range(4)), *(of("c", f"c{i}") for i in range(4)))
    stopped = stops(world.submit(of("a", "a", 4), after_ms=1))
    assert sorted(name[0] for name in stopped) == ["b", "b", "c", "c"]


def test_below_the_limit_of_use_nobody_is_stopped() -> None:
    for limit, stopped in ((88, []), (87, ["b1"])):
        world = World(flat(2, 4), f"{HALVES},preempt_above={limit}")
        world.run(of("b", "b0", 4), of("b", "b1", 3))
        assert stops(world.submit(of("a", "a", 4), after_ms=1)) == stopped, "7 of 8 are 87.5 %, and b1 leaves b its 4"


def test_jobs_that_fill_the_cluster_up_let_owners_who_were_refused_try_again_at_once() -> None:
    world = World(flat(2, 4), HALVES)
    world.run(of("b", "b0", 4), of("b", "b1", 3))
    assert not world.submit(of("a", "a", 4), after_ms=1).actions
    plan = world.submit(of("b", "b2"))
    assert starts(plan) == ["b2"]
    assert stops(plan) == ["b0"], "b1 and b2 clear a node, too, but b2 has not even started"


def test_a_queue_whose_own_job_ends_may_claim_what_others_have_elsewhere() -> None:
    world = World(flat(3, 4), "yarn-cs:shares=a:0.34/b:0.5,preempt_above=50")
    world.run(of("a", "a0", 2), of("b", "fixed", 2, preemptible=False), *(of("b", f"b{i}", 2) for i in range(4)))
    assert not stops(world.submit(of("a", "wide", 4), after_ms=1_000)), "with a0 that would be 6, and its share is 4"
    assert len(stops(world.end("a0"))) == 2
    assert "n0" not in world.where("wide"), "where a0 was there is no room for it"


def test_nobody_is_stopped_at_the_moment_at_which_it_got_its_devices() -> None:
    world = World(flat(1, 8), HALVES)
    world.run(*(of("b", f"b{i}") for i in range(8)))
    assert not stops(world.submit(of("a", "a")))
    assert len(stops(world.turn(after_ms=1))) == 1


def test_elastic_jobs_of_others_are_shrunk_down_to_their_queues_share() -> None:
    world = World(flat(1, 8), HALVES)
    world.run(of("b", "elastic", 1, (1, 8)))
    world.submit(*(of("a", f"a{i}") for i in range(6)), after_ms=1_000)
    while world.asked:
        world.done(*dict.fromkeys(action.job for action in world.asked))
    assert world.state.usage("b").gpu_permille == 4_000
    assert world.state.usage("a").gpu_permille == 4_000


def test_no_two_jobs_stop_one_another_in_turn() -> None:
    """Far more is wanted than there is, by both, for a long time."""
    jobs = [(100 * i, of("ab"[i % 2], f"j{i}", 1 + i % 4)) for i in range(60)]
    backend = virtual_backend({job.id: 20_000 for _, job in jobs}, start_ms=100, stop_ms=100)
    state = Run.of(flat(2, 4), HALVES, backend, submissions(jobs)).finish(steps_max=5_000)
    assert all(record.final for record in state.jobs.values())
    assert max(record.preemptions for record in state.jobs.values()) <= 2


def test_named_shares_come_first_and_the_others_divide_what_is_left() -> None:
    parts, whole, common = shares_of({"a": Fraction(1, 2)}, ("a", "b", "c"))
    assert {queue: Fraction(part, whole) for queue, part in parts.items()} == {
        "a": Fraction(1, 2),
        "b": Fraction(1, 4),
        "c": Fraction(1, 4),
    }
    assert all(common % part == 0 for part in parts.values())


def test_without_shares_all_queues_are_equal() -> None:
    parts, whole, _ = shares_of({}, ("a", "b", "c"))
    assert [Fraction(part, whole) for part in parts.values()] == [Fraction(1, 3)] * 3


def test_a_queue_without_a_share_takes_what_is_idle_and_gives_it_all_back() -> None:
    world = World(flat(1, 2), "yarn-cs:shares=a:1")
    assert starts(world.submit(of("guest", "g"), of("a", "a0"), of("a", "a1"))) == ["a0", "a1"]
    world = World(flat(1, 2), "yarn-cs:shares=a:1")
    world.run(of("guest", "g0"), of("guest", "g1"))
    assert not stops(world.submit(of("guest", "g2")))
    assert sorted(stops(world.submit(of("a", "a", 2), after_ms=1))) == ["g0", "g1"]


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("yarn-cs:shares=a:0.7/b:0.5", "policy yarn-cs: shares add up to 1.2: expected at most 1"),
        ("yarn-cs:preempt_above=101", "policy yarn-cs: preempt_above=101: expected at least 0 and at most 100"),
        ("yarn-cs:relax_after=-1", "policy yarn-cs: relax_after=-1: expected at least 0"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(spec: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        policy(spec)


def fragmented(policy: str = "yarn-cs") -> World:
    """Two nodes of 2 GPUs, one of each taken by x and w."""
    world = World(flat(2, 2), policy)
    world.run(of("a", "x"), of("a", "z"), of("a", "w"))
    world.end("z")
    return world


WIDE = of("a", "wide", 2, task={"divisible": True})


def test_a_gang_spreads_when_it_has_tried_for_long_enough() -> None:
    world = fragmented("yarn-cs:relax_after=60")
    assert not world.submit(WIDE).actions
    assert not world.turn(after_ms=59_999).actions
    assert starts(world.turn(after_ms=1)) == ["wide"]
    assert len(world.where("wide")) == 2


def test_a_gang_stays_together_if_it_can_before() -> None:
    world = fragmented()
    world.submit(WIDE)
    assert starts(world.end("x", after_ms=60_000)) == ["wide"]
    assert world.where("wide") == {"n0": (0, 1)}


def test_who_was_stopped_tries_anew_to_stay_together() -> None:
    world = World(flat(2, 2), HALVES + ",relax_after=60")
    world.run(of("b", "wide", 2, task={"divisible": True}), after_ms=100_000)
    world.run(of("b", "b0", preemptible=False), of("b", "b1", preemptible=False))
    assert stops(world.submit(of("a", "a0"), of("a", "a1"), after_ms=1)) == ["wide"]
    world.done("wide")
    world.done("a0", "a1")
    world.end("a0")
    world.end("b0")
    assert world.job("wide").attempt is None, "one is free on each node"
    assert world.state.next_wakeup() == world.now + 60_000


def test_a_gang_that_was_held_past_its_time_is_spread_at_once() -> None:
    world = fragmented("yarn-cs:relax_after=60")
    world.submit(WIDE)
    world.turn(JobHeld("wide"))
    assert not world.turn(after_ms=120_000).actions
    assert starts(world.turn(JobReleased("wide"))) == ["wide"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.integers(1, 40)), max_size=25))
def test_nobody_is_stopped_whose_queue_has_no_more_than_its_share(rows: list[tuple[str, int, int]]) -> None:
    jobs = [(500 * i, of(queue, f"j{i}", gpus)) for i, (queue, gpus, _) in enumerate(rows)]
    backend = virtual_backend({f"j{i}": 1_000 * seconds for i, (_, _, seconds) in enumerate(rows)}, stop_ms=700)
    run = Run.of(flat(2, 4), "yarn-cs:shares=a:0.5/b:0.25/c:0.25", backend, submissions(jobs))
    owned = {"a": 4_000, "b": 2_000, "c": 2_000}
    while (plan := run.step()) is not None:
        for queue in {run.state.jobs[name].job.queue for name in stops(plan)}:
            assert run.state.usage(queue).gpu_permille >= owned[queue]
    assert all(record.final for record in run.state.jobs.values())
