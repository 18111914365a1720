"""fifo: strict by default, and with skip."""

from __future__ import annotations

from builders import World, a_job, of_roles, starts, workers
from phalanx.cluster.cluster import flat
from phalanx.protocol.reason import Reason
from phalanx.workload.gang import Role, Task


def test_a_head_that_does_not_fit_holds_up_all_behind_it() -> None:
    world = World(flat(1, 8), "fifo")
    plan = world.submit(a_job("a", 6), a_job("b", 4), a_job("c", 1))
    assert starts(plan) == ["a"]
    assert plan.head == "b"
    assert world.reason("b") is Reason.GPUS
    assert world.reason("c") is Reason.BEHIND


def test_the_head_starts_as_soon_as_it_fits_and_then_whoever_is_behind_it() -> None:
    world = World(flat(1, 8), "fifo")
    world.submit(a_job("a", 6), a_job("b", 4), a_job("c", 1))
    world.done("a")
    assert starts(world.end("a", after_ms=10)) == ["b", "c"]
    assert world.state.head == ""


def test_a_head_that_can_never_fit_holds_up_nobody() -> None:
    world = World(flat(1, 8), "fifo")
    assert starts(world.submit(a_job("huge", 16), a_job("a", 1))) == ["a"]
    assert world.reason("huge") is Reason.NEVER_FITS


def test_a_job_that_can_never_fit_says_so_even_while_others_wait_for_a_head() -> None:
    world = World(flat(1, 8), "fifo")
    world.submit(a_job("huge", 16), a_job("a", 8), a_job("b", 8))
    assert world.state.head == "b"
    assert world.reason("huge") is Reason.NEVER_FITS


def test_a_gang_whose_second_role_can_never_fit_holds_up_nobody() -> None:
    world = World(flat(2, 8), "fifo")
    impossible = of_roles("impossible", workers(1, 8), Role("b", task=Task(1, ("H100",))))
    assert starts(world.submit(impossible, a_job("a", 1))) == ["a"]


def test_with_skip_whoever_fits_may_pass() -> None:
    world = World(flat(1, 8), "fifo:skip=true")
    plan = world.submit(a_job("a", 6), a_job("b", 4), a_job("c", 1))
    assert starts(plan) == ["a", "c"]
    assert plan.head == ""
    assert world.reason("b") is Reason.GPUS


def test_nobody_is_ever_stopped_for_another() -> None:
    world = World(flat(1, 8), "fifo:skip=true")
    world.run(a_job("a", 8))
    plan = world.submit(a_job("b", 8, priority=1_000))
    assert not plan.actions
    assert world.reason("b") is Reason.GPUS


def test_jobs_of_one_moment_start_in_the_order_in_which_they_were_submitted() -> None:
    world = World(flat(1, 3), "fifo")
    assert starts(world.submit(*(a_job(name) for name in ("z", "a", "m")))) == ["z", "a", "m"]


def test_a_job_that_comes_back_keeps_its_place() -> None:
    world = World(flat(1, 1), "fifo")
    world.submit(a_job("a", retry_limit=1), a_job("b"))
    world.failed("a")
    assert world.reason("a") is Reason.BACKOFF
    assert world.status("b").value == "starting", "the one behind goes on meanwhile"
    world.done("b")
    world.submit(a_job("c"), after_ms=2_000)
    assert starts(world.end("b")) == ["a"]
