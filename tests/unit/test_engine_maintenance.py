"""Nodes that are to be empty at a time known beforehand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import World, a_job, everything, starts
from phalanx.cluster.cluster import Cluster, Health, flat
from phalanx.cluster.formats.native import read_cluster
from phalanx.cluster.maintenance import Maintenance
from phalanx.cluster.queues import Queue, Quota
from phalanx.document import DocumentError
from phalanx.engine.state.windows import spare_ms
from phalanx.engine.turn import replay, verify
from phalanx.engine.why.why import why
from phalanx.protocol.action import Stop
from phalanx.protocol.event import ClusterChanged, NodeHealthChanged
from phalanx.protocol.reason import Reason
from phalanx.words.reason import because
from phalanx.workload.job import Kind

HOUR_MS = 3_600_000


def closing(nodes: int = 1, *windows: Maintenance) -> Cluster:
    """Nodes of 4 GPUs of which n0 is closed from one hour on for another."""
    return replace(flat(nodes, 4), maintenance=windows or (Maintenance("kernel", ("n0",), HOUR_MS, 2 * HOUR_MS),))


def nodes_of(world: World, job: str) -> list[str]:
    attempt = world.job(job).attempt
    assert attempt is not None
    return [slot.node for slot in attempt.placement.slots]


def test_who_would_run_into_it_is_kept_off_and_who_ends_before_it_is_not() -> None:
    world = World(closing(), "fifo:skip=true")
    plan = world.submit(a_job("long", 2, duration_ms=HOUR_MS + 1), a_job("short", 2, duration_ms=HOUR_MS))
    assert starts(plan) == ["short"]
    assert world.reason("long") is Reason.MAINTENANCE


def test_who_would_run_into_it_goes_where_nothing_is_closed() -> None:
    world = World(closing(2), "fifo")
    world.run(a_job("long", 2, duration_ms=2 * HOUR_MS))
    assert nodes_of(world, "long") == ["n1"]


def test_a_shorter_one_that_is_asked_for_later_has_its_try() -> None:
    world = World(closing(), "fifo:skip=true")
    world.submit(a_job("long", 2, duration_ms=3 * HOUR_MS))
    assert starts(world.submit(a_job("short", 2, duration_ms=HOUR_MS // 2), after_ms=1_000)) == ["short"]


def test_between_two_times_the_node_is_open_for_what_fits_between() -> None:
    windows = (Maintenance("a", ("n0",), HOUR_MS, 2 * HOUR_MS), Maintenance("b", ("n0",), 4 * HOUR_MS, 5 * HOUR_MS))
    world = World(closing(1, *windows), "fifo:skip=true")
    world.submit(a_job("three", 2, duration_ms=3 * HOUR_MS), a_job("two", 2, duration_ms=2 * HOUR_MS))
    assert starts(world.turn(after_ms=2 * HOUR_MS)) == ["two"]
    world.done("two")
    assert world.reason("three") is Reason.MAINTENANCE
    world.end("two", after_ms=2 * HOUR_MS)
    assert starts(world.turn(after_ms=HOUR_MS)) == ["three"]


def test_who_does_not_say_how_long_it_runs_is_stopped_when_the_time_comes_and_goes_on_afterwards() -> None:
    world = World(closing(), "fifo")
    world.run(a_job("open", 4, grace_ms=30_000))
    plan = world.turn(after_ms=HOUR_MS)
    assert [(type(action), action.id.job) for action in plan.actions] == [(Stop, "open")]
    assert plan.actions[0].reason == "maintenance"
    assert plan.actions[0].grace_ms == 30_000
    world.done("open")
    assert world.reason("open") is Reason.UNHEALTHY
    assert starts(world.turn(after_ms=HOUR_MS)) == ["open"]
    assert everything(replay(world.journal)) == everything(world.state)
    assert everything(verify(world.journal)) == everything(world.state)


@pytest.mark.parametrize("policy", ["fifo:skip=true", "phalanx", "priority", "backfill", "fair"])
def test_who_does_not_say_how_long_it_runs_starts_also_behind_one_that_would_run_into_it(policy: str) -> None:
    world = World(closing(), policy)
    jobs = (a_job("long", 4, duration_ms=2 * HOUR_MS), a_job("longer", 4, duration_ms=3 * HOUR_MS), a_job("open", 4))
    plan = world.submit(*jobs)
    assert starts(plan) == ([] if policy == "backfill" else ["open"])
    answer = why(world.state, "long")
    assert "()" not in because(answer)
    assert everything(verify(world.journal)) == everything(world.state)


def test_a_reason_of_another_of_its_kind_is_not_told_of_one_that_would_not_run_into_it() -> None:
    world = World(closing(), "backfill")
    world.submit(a_job("long", 4, duration_ms=2 * HOUR_MS), a_job("open", 4))
    answer = why(world.state, "open")
    assert answer.reason is Reason.RESERVED
    assert "maintenance" not in because(answer)


@pytest.mark.parametrize("said", [{"preemptible": False}, {"kind": Kind.SERVICE}])
def test_who_may_not_be_stopped_and_has_no_end_is_not_placed_there(said: dict[str, object]) -> None:
    world = World(closing(), "fifo")
    assert not starts(world.submit(a_job("stays", 4, **said)))


def test_what_is_said_of_a_closed_node_counts_once_it_is_open() -> None:
    world = World(closing(), "fifo")
    world.turn(after_ms=HOUR_MS)
    world.turn(NodeHealthChanged("n0", Health.HEALTHY), after_ms=1_000)
    assert not starts(world.submit(a_job("j", 1)))
    world.turn(NodeHealthChanged("n0", Health.SUSPECT), after_ms=1_000)
    assert not starts(world.turn(after_ms=HOUR_MS))
    assert starts(world.turn(NodeHealthChanged("n0", Health.HEALTHY), after_ms=1_000)) == ["j"]


def test_maintenance_that_is_called_off_opens_the_node_at_once() -> None:
    world = World(closing(), "fifo")
    world.submit(a_job("long", 4, duration_ms=9 * HOUR_MS))
    assert starts(world.turn(ClusterChanged(flat(1, 4)), after_ms=1_000)) == ["long"]
    world = World(closing(), "fifo")
    world.turn(after_ms=HOUR_MS)
    world.submit(a_job("j", 4))
    assert starts(world.turn(ClusterChanged(flat(1, 4)), after_ms=1_000)) == ["j"]


def test_maintenance_that_is_announced_later_counts_from_then_on() -> None:
    world = World(flat(1, 4), "fifo:skip=true")
    world.turn(ClusterChanged(closing()), after_ms=1_000)
    assert not starts(world.submit(a_job("long", 2, duration_ms=9 * HOUR_MS)))
    assert starts(world.submit(a_job("short", 2, duration_ms=1_000))) == ["short"]


def test_the_head_is_reserved_for_after_it() -> None:
    world = World(closing(), "backfill")
    world.submit(a_job("long", 4, duration_ms=3 * HOUR_MS))
    assert [(each.job, each.at_ms) for each in world.state.reservations] == [("long", 2 * HOUR_MS)]
    assert starts(world.submit(a_job("short", 4, duration_ms=HOUR_MS // 2))) == ["short"]


def test_victims_are_not_stopped_for_a_place_that_closes() -> None:
    world = World(closing(), "priority")
    world.run(a_job("low", 4, duration_ms=HOUR_MS // 2))
    plan = world.submit(a_job("high", 4, duration_ms=2 * HOUR_MS, priority=100))
    assert not plan.actions
    plan = world.submit(a_job("higher", 4, duration_ms=HOUR_MS // 2, priority=150))
    assert plan.claims[0].victims == ("low/1",)


FILE = """
nodes: [{count: 2, name: "a-{}", gpus: 4, rack: r0}, {name: b-0, gpus: 4, rack: r1}]
maintenance:
  - {name: kernel, nodes: [r0], start: 2030-01-31T08:00Z, for: 4h}
"""


def test_a_cluster_file_names_nodes_by_domain_or_pattern() -> None:
    (window,) = read_cluster(FILE, "c.yaml").maintenance
    assert window == Maintenance("kernel", ("a-0", "a-1"), 1_896_076_800_000, 1_896_076_800_000 + 4 * HOUR_MS)
    (window,) = read_cluster(FILE.replace("[r0]", "['a-*', b-0]"), "c.yaml").maintenance
    assert window.nodes == ("a-0", "a-1", "b-0")
    (window,) = read_cluster(FILE.replace("2030-01-31T08:00Z", "+2h"), "c.yaml").maintenance
    assert window.start_ms == 2 * HOUR_MS


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[r0]", "[r7]", "no such node or domain"),
        ("for: 4h", "for: 0", "more than nothing"),
        ("for: 4h", "until: 4h", "until"),
        ("start: 2030-01-31T08:00Z", "start: soon", "a time with its zone"),
    ],
)
def test_an_entry_that_makes_no_sense_is_refused_by_name(old: str, new: str, said: str) -> None:
    with pytest.raises(DocumentError, match=said):
        read_cluster(FILE.replace(old, new), "c.yaml")


def test_how_long_others_of_its_kind_may_run_is_told_of_a_job_that_is_not_in_line() -> None:
    world = World(closing(), "fifo:skip=true")
    world.run(a_job("runs", 2, duration_ms=HOUR_MS // 2))
    assert spare_ms(world.state, world.job("runs")) == 0


@pytest.mark.parametrize("policy", ["fifo", "fair", "backfill", "fair:backfill=easy", "priority"])
def test_who_has_back_what_was_lent_does_not_run_into_it(policy: str) -> None:
    queues = Queue("a", deserved=Quota(8_000)), Queue("b", deserved=Quota(0))
    world = World(replace(closing(3), queues=queues), policy)
    world.run(*(a_job(f"lent{i}", 4, queue="b", duration_ms=HOUR_MS // 2) for i in range(3)))
    plan = world.submit(a_job("long", 4, queue="a", duration_ms=2 * HOUR_MS), after_ms=1_000)
    assert [claim.placement.nodes for claim in plan.claims] == [("n1",)]
    plan = world.submit(a_job("short", 4, queue="a", duration_ms=HOUR_MS // 4), after_ms=1_000)
    assert [len(claim.victims) for claim in plan.claims] == [1]


def test_who_could_have_back_only_what_is_to_be_closed_waits_until_it_is_open_again() -> None:
    queues = Queue("a", deserved=Quota(4_000)), Queue("b", deserved=Quota(0))
    world = World(replace(closing(), queues=queues), "fair")
    world.run(a_job("lent", 4, queue="b", duration_ms=HOUR_MS // 2))
    plan = world.submit(a_job("long", 4, queue="a", duration_ms=2 * HOUR_MS), after_ms=1_000)
    assert (plan.claims, plan.actions) == ((), ())


@pytest.mark.parametrize("policy", ["backfill", "backfill:mode=conservative", "fair:backfill=easy", "priority"])
def test_a_head_keeps_its_reservation_while_the_maintenance_that_it_waits_for_lasts(policy: str) -> None:
    """head needs both nodes, and n0 is closed from 1 to 3 hours: long on n1 would put it off until hour 7."""
    closed = (Maintenance("m", ("n0",), HOUR_MS, 3 * HOUR_MS),)
    world = World(replace(flat(2, 4), maintenance=closed), policy)
    world.submit(a_job("head", 4, 2, duration_ms=2 * HOUR_MS, max_wait_ms=0))
    world.turn(after_ms=HOUR_MS)

    assert [(made.job, made.at_ms) for made in world.state.reservations] == [("head", 3 * HOUR_MS)]
    plan = world.submit(a_job("long", 4, duration_ms=5 * HOUR_MS), after_ms=HOUR_MS)
    assert starts(plan) == []
    assert starts(world.turn(after_ms=HOUR_MS)) == ["head"]
