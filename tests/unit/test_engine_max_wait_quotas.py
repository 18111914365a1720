"""Jobs that may wait only so long, where queues have quotas: a decision leaves nothing to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from builders import World, a_job, starts, stops
from phalanx.cluster.cluster import NODE, Cluster, Node
from phalanx.cluster.queues import Queue, Quota
from phalanx.engine.decide.cycle import decide
from phalanx.engine.plan import builder
from phalanx.engine.reserve import reservations as reserve
from phalanx.engine.reserve.earliest import EarliestSearch, Interval
from phalanx.engine.state.records import JobRecord
from phalanx.protocol.event import AttemptEnded, JobCancelled, JobSubmitted, Outcome
from phalanx.protocol.plan import Plan, Reservation
from phalanx.workload.job import Job, Kind
from phalanx.workload.share import ShareAsk, ShareKind, fraction_ask

SECOND_MS = 1_000


def deserves(queue: str, gpus: int) -> Queue:
    return Queue(queue, deserved=Quota(gpus * 1000))


def world_of(*queues: Queue, nodes: int = 1, each: int = 2, cpus: int = 0, policy: str = "fair") -> World:
    """Equal nodes n0, n1, … whose devices can be shared."""
    every = tuple(Node(f"n{i}", (), each, "A100-80", 80.0, cpus * 1000) for i in range(nodes))
    return World(Cluster(every, (NODE,), queues=queues), policy)


def of(queue: str, name: str, gpus: int = 1, count: int = 1, seconds: int | None = None, **job: Any) -> Job:
    """A job of a queue, which lasts so long."""
    duration_ms = None if seconds is None else seconds * SECOND_MS
    return a_job(name, gpus, count, queue=queue, duration_ms=duration_ms, **job)


def share(queue: str, name: str, permille: int, **job: Any) -> Job:
    return of(queue, name, task={"share": fraction_ask(permille)}, **job)


def with_cpus(queue: str, name: str, gpus: int, cpus: int, **job: Any) -> Job:
    return of(queue, name, gpus, task={"cpus_milli": cpus * 1000}, **job)


def claims(plan: Plan) -> list[tuple[str, bool, tuple[str, ...]]]:
    """Who gets devices, whether it waits for them, and who is stopped for it."""
    return [(claim.job, claim.waits, claim.victims) for claim in plan.claims]


def reserved(world: World) -> list[tuple[str, int]]:
    """For whom devices are reserved, in how many seconds."""
    return [(each.job, (each.at_ms - world.now) // SECOND_MS) for each in world.state.reservations]


def adds_nothing(world: World) -> bool:
    """Whether deciding again right away changes nothing."""
    again = decide(world.state, world.now)
    return not again.claims and not again.actions and not again.withdrawn


def test_who_was_due_something_in_vain_has_it_back_once_others_borrow_in_the_same_decision() -> None:
    """c lends nothing back, and b has what it deserves: late finds nobody to stop. Then borrows starts, of b."""
    world = world_of(deserves("a", 2), deserves("b", 2), deserves("c", 0), nodes=3)
    world.run(of("c", "stays", 2, preemptible=False), of("b", "b0"))
    world.run(of("b", "gap"), of("b", "b1"))
    world.end("gap")
    assert world.where("b0").keys().isdisjoint(world.where("b1"))
    world.submit(of("a", "late", 2, max_wait_ms=SECOND_MS))
    plan = world.turn(JobSubmitted(of("b", "borrows", seconds=1)), after_ms=SECOND_MS)
    assert claims(plan) == [("borrows", False, ()), ("late", True, ("b1/1",))]
    assert adds_nothing(world)


def test_who_was_held_back_is_tried_again_once_others_lie_where_something_is_reserved() -> None:
    """The free GPU of n0 is reserved for late as a whole, until brief has a share of it. Then long may lie there, too:
    late has a place on the other two.
    """
    world = world_of(deserves("a", 3), nodes=3, each=1)
    world.run(of("a", "x", seconds=9), of("a", "y", seconds=9))
    world.submit(of("a", "late", 1, 2, max_wait_ms=SECOND_MS))
    world.turn(after_ms=SECOND_MS)
    assert reserved(world) == [("late", 8)]
    plan = world.submit(share("a", "long", 200), share("a", "brief", 300, seconds=2))
    assert claims(plan) == [("brief", False, ()), ("long", False, ())]
    assert world.where("long") == world.where("brief")
    assert reserved(world) == [("late", 8)]


def test_room_beside_those_who_leave_goes_to_who_ends_before_they_should_have_left_however_late_they_are() -> None:
    """due should have ended by now, but whole has not even left: it may, by what it said, in 3 s. brief ends before."""
    world = world_of(Queue("a"), deserves("b", 1), nodes=2, cpus=8)
    world.submit(of("a", "whole", 2, 2, seconds=8), of("a", "late", 2, 2, max_wait_ms=3 * SECOND_MS))
    assert claims(world.submit(of("b", "due", seconds=2), after_ms=3 * SECOND_MS)) == [("due", True, ("whole/1",))]
    assert reserved(world) == [("late", 5)]
    long, brief = of("b", "long", seconds=40), with_cpus("b", "brief", 1, 1, seconds=2)
    plan = world.submit(long, brief, after_ms=2 * SECOND_MS)
    assert claims(plan) == [("brief", True, ())]
    assert [(each.at_ms, each.could_start_ms) for each in world.state.reservations] == [(10_000, 8_000)]
    assert adds_nothing(world)


def test_a_job_on_free_devices_has_nothing_reserved_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of attempts would be let go and taken back for each search, at every start of a short job."""
    searched: list[str] = []
    find = EarliestSearch.find

    def found(search: EarliestSearch, record: JobRecord, intervals: Sequence[Interval]) -> Reservation | None:
        searched.append(record.job.id)
        return find(search, record, intervals)

    monkeypatch.setattr(EarliestSearch, "find", found)
    world = world_of(Queue("a"), nodes=3, policy="fifo:skip=true")
    world.run(of("a", "x", 2, seconds=30), of("a", "y", 2, seconds=40))
    world.submit(of("a", "late", 2, 3, max_wait_ms=SECOND_MS))
    world.turn(after_ms=SECOND_MS)
    assert searched == ["late"]
    assert reserved(world) == [("late", 39)]
    assert claims(world.submit(of("a", "short", seconds=5))) == [("short", False, ())]
    assert searched == ["late"]
    assert reserved(world) == [("late", 39)]
    assert adds_nothing(world)


def test_who_starts_again_is_expected_to_end_once_the_rest_of_it_is_done() -> None:
    """again has 6 of its 10 seconds to go, and has back a GPU that was reserved for late."""
    world = world_of(deserves("a", 1), deserves("b", 0), nodes=2)
    world.run(of("a", "again", seconds=10, retry_limit=2))
    world.end("again", Outcome.FAILED, after_ms=4 * SECOND_MS)
    assert world.job("again").not_before_ms == 5 * SECOND_MS
    world.run(of("b", "x", 2, preemptible=False), of("b", "y", seconds=5, preemptible=False), of("b", "v", seconds=5))
    world.submit(of("b", "late", 2, max_wait_ms=0))
    assert reserved(world) == [("late", 5)]
    assert claims(world.turn(after_ms=SECOND_MS)) == [("again", True, ("v/1",))]
    assert reserved(world) == [("late", 6)]


def test_a_device_that_is_being_cut_can_be_reserved() -> None:
    world = world_of(deserves("a", 1), each=1)
    world.submit(of("a", "small", seconds=9, task={"share": ShareAsk(ShareKind.MIG, profile="1g.10gb")}))
    world.submit(of("a", "late", max_wait_ms=SECOND_MS))
    world.turn(after_ms=SECOND_MS)
    assert not starts(world.turn())
    assert reserved(world) == [("late", 8)]


def test_who_needs_only_cpus_of_one_who_leaves_does_not_take_those_of_whom_something_is_reserved_for() -> None:
    """late needs 4 of 8 CPUs in 7 seconds. v leaves 6 of them; long would have these for ever."""
    world = world_of(deserves("a", 2), cpus=8)
    world.run(with_cpus("a", "x", 1, 0, seconds=9), with_cpus("a", "v", 1, 6, seconds=9))
    world.submit(with_cpus("a", "late", 2, 4, max_wait_ms=SECOND_MS))
    world.turn(after_ms=SECOND_MS)
    plan = world.turn(JobCancelled("v"), JobSubmitted(with_cpus("a", "long", 0, 6)), after_ms=SECOND_MS)
    assert not plan.claims
    assert reserved(world) == [("late", 7)]


@pytest.mark.parametrize(("queue", "expected"), [("a", []), ("b", [("due", True, ("v/1",))])])
def test_who_stops_a_borrower_takes_nothing_beside_it_that_is_reserved_for_one_who_does_not_borrow(
    queue: str, expected: list[tuple[str, bool, tuple[str, ...]]]
) -> None:
    """One GPU of n1 is free and reserved for late. due would have that beside the one that v borrows."""
    world = world_of(deserves("a", 3), deserves("b", 0), deserves("c", 2), nodes=2, each=3)
    world.run(of("b", "all", 3, preemptible=False))
    world.run(of("b", "v", seconds=9), of("b", "stays", seconds=9, preemptible=False))
    world.submit(of(queue, "late", 3, max_wait_ms=SECOND_MS))
    world.turn(after_ms=SECOND_MS)
    assert reserved(world) == [("late", 8)]
    assert claims(world.submit(of("c", "due", 2))) == expected


def test_a_promise_goes_to_who_is_due_it_with_those_who_are_stopped_for_it() -> None:
    """high stops low of its own queue, which borrows both GPUs. due has what low leaves, and nobody else is stopped."""
    world = world_of(deserves("a", 1), deserves("b", 0), policy="priority")
    world.run(of("b", "low"), of("b", "stays", preemptible=False))
    high, due = of("b", "high", priority=9, max_wait_ms=3_600 * SECOND_MS), of("a", "due")
    plan = world.submit(high, due)
    assert claims(plan) == [("due", True, ("low/1",))]
    assert stops(plan) == ["low"]
    assert adds_nothing(world)


def test_who_made_way_takes_over_in_turn_from_one_who_goes_first_only_for_having_waited() -> None:
    """over and mid would have the GPUs of n1. due1 has mid's, and due2 has big stopped: now b has less than its due."""
    world = world_of(deserves("a", 3), deserves("b", 1), deserves("c", 0), nodes=2)
    world.run(of("b", "big", 2), of("a", "gone", 2))
    world.submit(of("c", "over", max_wait_ms=SECOND_MS), of("b", "mid", max_wait_ms=2 * SECOND_MS))
    assert not world.turn(after_ms=2 * SECOND_MS).claims
    ended = AttemptEnded("gone", 1, Outcome.SUCCEEDED)
    plan = world.turn(ended, JobSubmitted(of("a", "due1")), JobSubmitted(of("a", "due2", 2)))
    assert claims(plan) == [("due1", False, ()), ("due2", True, ("big/1",)), ("mid", False, ())]
    assert adds_nothing(world)


def test_whom_somebody_was_in_the_way_of_who_made_way_in_the_same_decision_starts_at_once() -> None:
    """first has 600 of each GPU, so that next must wait for v to leave 400 of the second. Then due has what first would
    borrow, on the other.
    """
    queues = (Queue("a", deserved=Quota(1000)), deserves("b", 0), Queue("c", deserved=Quota(600)))
    world = world_of(*queues)
    world.run(share("a", "stays", 400), share("a", "gone0", 600))
    world.run(share("a", "v", 400), share("a", "gone1", 600))
    assert (world.where("stays"), world.where("v")) == ({"n0": (0,)}, {"n0": (1,)})
    first = share("b", "first", 600, count=2, max_wait_ms=SECOND_MS)
    world.submit(first, share("b", "next", 400, max_wait_ms=2 * SECOND_MS))
    assert not world.turn(after_ms=2 * SECOND_MS).claims
    ended = [AttemptEnded(name, 1, Outcome.SUCCEEDED) for name in ("gone0", "gone1")]
    plan = world.turn(*ended, JobCancelled("v"), JobSubmitted(share("c", "due", 600)))
    assert claims(plan) == [("next", False, ()), ("due", False, ())]
    assert sorted(starts(plan)) == ["due", "next"]
    assert adds_nothing(world)


def test_who_was_refused_before_another_of_its_kind_came_in_is_tried_again_before_it() -> None:
    """Nothing is left for late until due has whole leave. Then half of what that leaves is late's, not next's."""
    world = world_of(deserves("a", 1), deserves("b", 0))
    world.run(of("b", "whole", 2, seconds=9))
    world.submit(of("b", "late", max_wait_ms=SECOND_MS), of("b", "next"))
    world.turn(after_ms=SECOND_MS)
    assert reserved(world) == [("late", 8)]
    assert claims(world.submit(of("a", "due"))) == [("due", True, ("whole/1",)), ("late", True, ())]


def test_whom_another_comes_before_in_time_has_its_reservation_made_again_behind_it() -> None:
    """Nobody knows when ever will end: what is reserved for first until it has is second's before."""
    world = world_of(deserves("a", 4), each=4)
    world.run(of("a", "ever"), of("a", "x", 2, seconds=8))
    world.submit(of("a", "first", 4, seconds=10, max_wait_ms=SECOND_MS))
    world.submit(of("a", "second", 3, seconds=10, max_wait_ms=2 * SECOND_MS))
    world.turn(after_ms=2 * SECOND_MS)
    assert reserved(world)[1:] == [("second", 6)]
    world.end("ever", after_ms=SECOND_MS)
    assert reserved(world) == [("first", 5), ("second", 15)]


def test_a_share_that_would_delay_whom_a_share_is_reserved_for_is_seated_elsewhere() -> None:
    """small fits best beside x, where late would have too little once x has ended; it fits beside y as well."""
    world = world_of(deserves("a", 2), nodes=2, each=1)
    world.run(share("a", "x", 600, seconds=8), share("a", "y", 500))
    assert (world.where("x"), world.where("y")) == ({"n0": (0,)}, {"n1": (0,)})
    world.submit(share("a", "late", 700, max_wait_ms=SECOND_MS))
    world.turn(after_ms=SECOND_MS)
    assert reserved(world) == [("late", 7)]
    assert starts(world.submit(share("a", "small", 400))) == ["small"]
    assert world.where("small") == {"n1": (0,)}
    assert reserved(world) == [("late", 7)]


def test_a_share_that_would_delay_whom_whole_devices_are_reserved_for_waits() -> None:
    """small fits beside x, whose device late has reserved from 8 s on."""
    world = world_of(deserves("a", 4), nodes=2)
    world.run(of("a", "whole", 2), share("a", "x", 700, seconds=8))
    world.submit(of("a", "late", 2, max_wait_ms=SECOND_MS))
    world.turn(after_ms=SECOND_MS)
    before = reserved(world)
    assert starts(world.submit(share("a", "small", 200, seconds=8))) == []
    assert world.reason("small") == "reserved"
    assert reserved(world) == before


def test_past_the_bound_on_work_who_waits_is_reserved_for_once_something_grew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is made anew as somebody ends, which counts, too: 1 for first, 1 for second."""
    monkeypatch.setattr(reserve, "MAKES_MAX", 1)
    world = world_of(deserves("a", 4), nodes=2)
    world.run(of("a", "x", 2, seconds=8), of("a", "y", 2, seconds=9))
    for name in ("first", "second"):
        world.submit(of("a", name, 2, max_wait_ms=SECOND_MS, seconds=60))
    world.turn(after_ms=SECOND_MS)
    assert [job for job, _ in reserved(world)] == ["first"]
    monkeypatch.setattr(reserve, "MAKES_MAX", 2)
    world.end("x", after_ms=SECOND_MS)
    assert world.where("first") == {"n0": (0, 1)}
    assert [job for job, _ in reserved(world)] == ["second"]


def test_who_lacks_something_is_not_tried_again_because_a_reservation_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """whole can never have stays' GPU back. Were that tried again once late starts, due had no try left."""
    monkeypatch.setattr(builder, "RECLAIMS_MAX", 2)
    world = world_of(deserves("a", 4), deserves("b", 0), nodes=2)
    stays = of("b", "stays", preemptible=False, kind=Kind.SERVICE)
    world.run(stays, of("b", "x", seconds=9, preemptible=False), of("b", "gives", 2))
    world.submit(of("a", "whole", 2, 2, max_wait_ms=SECOND_MS), of("b", "late", max_wait_ms=2 * SECOND_MS))
    world.turn(after_ms=2 * SECOND_MS)
    assert reserved(world) == [("late", 7)]
    ended = AttemptEnded("x", 1, Outcome.SUCCEEDED)
    plan = world.turn(ended, JobSubmitted(of("a", "due", 2)), after_ms=SECOND_MS)
    assert claims(plan) == [("late", False, ()), ("due", True, ("gives/1",))]
