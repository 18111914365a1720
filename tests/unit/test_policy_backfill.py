"""backfill: what is reserved, for whom, and that nobody who passes delays it."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from builders import World, a_job, starts
from phalanx.cluster.cluster import Cluster, Health, Node, flat
from phalanx.engine.state.records import UNSAID_MS
from phalanx.engine.turn import verify
from phalanx.policy.policy import Key, Policy, Reserve
from phalanx.policy.registry import register
from phalanx.policy.view import JobView, Moment, RunView
from phalanx.protocol.action import Start, Stop
from phalanx.protocol.event import AttemptEnded, Done, JobCancelled, Outcome
from phalanx.protocol.plan import Plan
from phalanx.protocol.reason import Reason
from phalanx.simulate.simulation import Setup, Simulation
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.world.costs import NO_COSTS, Costs
from phalanx.workload.job import Kind
from phalanx.workload.share import fraction_ask


def reserved(world: World) -> dict[str, tuple[int, tuple[str, ...]]]:
    return {each.job: (each.at_ms, each.placement.nodes) for each in world.state.reservations}


def test_the_head_gets_the_first_moment_and_the_devices_that_those_who_run_will_have_left() -> None:
    world = World(flat(3, 4), "backfill")
    world.run(a_job("a", 4, duration_ms=50_000), a_job("b", 4, duration_ms=20_000), a_job("c", 4, duration_ms=90_000))
    world.submit(a_job("head", 4, 2, duration_ms=1_000))
    assert reserved(world) == {"head": (50_000, ("n0", "n1"))}
    verify(world.journal)


def test_somebody_who_ends_early_brings_the_reserved_time_forward() -> None:
    world = World(flat(2, 4), "backfill")
    world.run(a_job("a", 4, duration_ms=50_000), a_job("b", 4, duration_ms=90_000))
    world.submit(a_job("head", 4, 2, duration_ms=1_000))
    assert reserved(world)["head"][0] == 90_000
    world.end("b", after_ms=10_000)
    assert reserved(world)["head"] == (50_000, ("n0", "n1"))


def test_a_node_that_fails_has_the_reservation_made_anew() -> None:
    world = World(flat(3, 4), "backfill")
    world.run(a_job("a", 4, duration_ms=50_000), a_job("b", 4, duration_ms=60_000), a_job("c", 4, duration_ms=90_000))
    world.submit(a_job("head", 4, 2, duration_ms=1_000))
    world.health("n0", Health.DRAINING)
    assert reserved(world) == {"head": (90_000, ("n1", "n2"))}


def test_who_says_nothing_of_its_length_is_expected_to_stay_and_passes_nobody() -> None:
    world = World(flat(2, 4), "backfill")
    world.run(a_job("a", 4, duration_ms=50_000))
    world.submit(a_job("head", 4, 2, duration_ms=1_000))
    world.submit(a_job("endless", 1))
    assert world.state.reason("endless") is Reason.RESERVED


def test_what_somebody_of_unknown_length_holds_is_reserved_for_after_all_others() -> None:
    """A moment that nobody knows is none to wake for; who says that it ends passes, and who says nothing does not."""
    world = World(flat(1, 4), "backfill")
    world.run(a_job("endless", 3))
    world.submit(a_job("head", 4, duration_ms=1_000))
    assert {job: at for job, (at, _) in reserved(world).items()} == {"head": UNSAID_MS}
    assert world.state.next_wakeup() is None
    assert world.state.reason("head") is Reason.GPUS
    assert not starts(world.submit(a_job("unsaid", 1)))
    assert starts(world.submit(a_job("said", 1, duration_ms=60_000))) == ["said"]
    world.done("said")
    world.end("said", after_ms=60_000)
    assert starts(world.end("endless")) == ["head"]


def test_nothing_is_reserved_on_what_a_service_holds() -> None:
    world = World(flat(1, 4), "backfill")
    world.run(a_job("service", 3, kind=Kind.SERVICE))
    world.submit(a_job("head", 4, duration_ms=1_000))
    assert reserved(world) == {}
    assert starts(world.submit(a_job("unsaid", 1))) == ["unsaid"]


def test_a_head_that_goes_leaves_its_reservation_to_the_next() -> None:
    world = World(flat(2, 4), "backfill")
    world.run(a_job("a", 4, duration_ms=50_000))
    world.submit(a_job("head", 4, 2, duration_ms=1_000), a_job("next", 4, 2, duration_ms=2_000))
    assert list(reserved(world)) == ["head"]
    world.turn(JobCancelled("head"))
    assert list(reserved(world)) == ["next"]


def test_with_conservative_backfilling_everybody_in_line_has_a_time() -> None:
    world = World(flat(1, 4), "backfill:mode=conservative")
    world.run(a_job("a", 4, duration_ms=50_000))
    world.submit(a_job("b", 4, duration_ms=10_000), a_job("c", 3, duration_ms=30_000), a_job("d", 1, duration_ms=5_000))
    assert {job: at for job, (at, _) in reserved(world).items()} == {"b": 50_000, "c": 60_000, "d": 60_000}


def test_a_head_whose_time_has_come_but_not_its_gpus_keeps_off_nobody_who_leaves_it_a_place() -> None:
    """late should have ended by now; once it has, head and endless fit beside one another."""
    world = World(flat(1, 5), "backfill")
    world.run(a_job("gap", 2), a_job("late", 3, duration_ms=10_000))
    world.end("gap")
    world.submit(a_job("head", 4, duration_ms=1_000))
    assert [(each.at_ms, each.placement.slots[0].devices) for each in world.state.reservations] == [
        (10_000, (0, 1, 2, 3))
    ]
    assert starts(world.submit(a_job("endless", 1), after_ms=10_000)) == ["endless"]
    assert reserved(world)["head"][0] > 10_000


def test_one_more_of_a_kind_has_a_time_too_so_that_nobody_is_told_one_that_it_will_take() -> None:
    """second stands before pair in line: were nothing reserved for it, pair would be told 8 s and start at 13."""
    world = World(flat(3, 1), "backfill:mode=conservative")
    world.run(a_job("all", 1, 3, duration_ms=8_000))
    world.submit(a_job("first", 1, duration_ms=5_000))
    world.submit(a_job("second", 1, duration_ms=5_000), after_ms=1_000)
    world.submit(a_job("pair", 1, 2, duration_ms=5_000))
    assert {job: at_ms for job, (at_ms, _) in reserved(world).items()} == {
        "first": 8_000,
        "second": 8_000,
        "pair": 13_000,
    }


def test_who_stands_between_one_that_waits_and_a_shorter_one_of_its_kind_that_starts_has_a_time_too() -> None:
    world = World(flat(2, 2), "backfill:mode=conservative")
    plan = world.submit(
        a_job("a", 2, duration_ms=2_000),
        a_job("both", 2, 2, duration_ms=3_000),
        a_job("first", 2, duration_ms=3_000),
        a_job("between", 2, duration_ms=5_000),
        a_job("brief", 2, duration_ms=2_000),
    )
    assert starts(plan) == ["a", "brief"]
    assert [(job, at_ms) for job, (at_ms, _) in reserved(world).items()] == [
        ("both", 2_000),
        ("first", 5_000),
        ("between", 5_000),
    ]


def test_who_starts_at_its_time_does_not_take_what_is_reserved_for_those_behind() -> None:
    """At 4 s two, one and brief start together, if two leaves the others what is reserved for them."""
    cpus = {"cpus_milli": 2_000}
    nodes = tuple(Node(f"n{i}", (f"r{i // 2}",), 4, cpus_milli=4_000) for i in range(4))
    world = World(Cluster(nodes, ("rack", "node")), "backfill:mode=conservative")
    world.turn(after_ms=1_000)
    world.run(
        a_job("a", 4, duration_ms=3_000),
        a_job("b", 2, 4, task=cpus, duration_ms=5_000),
        a_job("c", 2, duration_ms=5_000),
    )
    world.turn(after_ms=1_000)
    world.submit(
        a_job("d", 2, required="rack", task=cpus, duration_ms=2_000),
        a_job("two", 1, 2, duration_ms=8_000),
        a_job("node", 4, required="rack", task={"cpus_milli": 1_000}, duration_ms=5_000),
        a_job("one", 1, required="rack", duration_ms=8_000),
        a_job("brief", 1, duration_ms=3_000),
    )
    world.done("d")
    assert [(job, at_ms) for job, (at_ms, _) in reserved(world).items()] == [
        ("two", 4_000),
        ("node", 6_000),
        ("one", 4_000),
        ("brief", 4_000),
    ]
    ended = [AttemptEnded(job, 1, Outcome.SUCCEEDED) for job in ("a", "d")]
    assert starts(world.turn(*ended, after_ms=2_000)) == ["two", "one", "brief"]


def test_no_share_is_reserved_of_a_device_that_is_reserved_whole_for_another() -> None:
    """half leaves its GPU at 5 s to whole; what is left of it until then is of no use to part, which would stay on."""
    world = World(flat(1, 2), "backfill:mode=conservative")
    world.run(a_job("half", task={"share": fraction_ask(500)}, duration_ms=5_000), a_job("other", duration_ms=9_000))
    world.submit(a_job("whole", duration_ms=30_000))
    world.submit(a_job("part", task={"share": fraction_ask(300)}, duration_ms=20_000))
    assert {job: at_ms for job, (at_ms, _) in reserved(world).items()} == {"whole": 5_000, "part": 9_000}


def starts_of(jobs: list[TraceJob], gpus: int, policy: str) -> dict[str, int]:
    simulation = Simulation(Setup(flat(1, gpus), Trace("t", tuple(jobs)), policy, "count", NO_COSTS))
    simulation.begin()
    simulation.go()
    return {job: record.first_start_ms or 0 for job, record in simulation.run.state.jobs.items()}


JOBS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 30), st.integers(1, 4)), min_size=1, max_size=12).map(
    lambda rows: [
        TraceJob(str(i), 1000 * at, 1000 * length, gpus)
        for i, (at, length, gpus) in enumerate(sorted(rows, key=lambda entry: entry[0]))
    ]
)


@given(JOBS)
def test_with_true_estimates_the_first_who_waits_never_starts_later_than_reserved(jobs: list[TraceJob]) -> None:
    simulation = Simulation(Setup(flat(1, 4), Trace("t", tuple(jobs)), "backfill", "count", NO_COSTS))
    simulation.begin()
    promised: dict[str, int] = {}

    def watch(state: object) -> None:
        for reservation in simulation.run.state.reservations:
            promised.setdefault(reservation.job, reservation.at_ms)

    simulation.go(watch=watch)
    for job, at_ms in promised.items():
        assert (simulation.run.state.jobs[job].first_start_ms or 0) <= at_ms, job


@given(JOBS)
def test_with_true_estimates_conservative_backfilling_starts_nobody_later_than_strict_fifo(
    jobs: list[TraceJob],
) -> None:
    strict, passing = starts_of(jobs, 4, "fifo"), starts_of(jobs, 4, "backfill:mode=conservative")
    assert all(passing[job] <= strict[job] for job in strict)


def by_priority(job: JobView, at: Moment) -> Key:
    return (-job.job.priority, job.submitted_ms, job.number)


def of_lower_priority(head: JobView, run: RunView, at: Moment) -> bool:
    return run.job.priority < head.job.priority


def stops_and_reserves(reserve: Reserve) -> str:
    """The name of a policy that stops lower priorities and reserves for who waits."""
    name = f"stops-and-reserves-for-{reserve}"
    register(name, lambda parameters: Policy(name, order=by_priority, victims=of_lower_priority, reserve=reserve))
    return name


@given(
    st.lists(
        st.tuples(st.integers(1, 30), st.integers(1, 8), st.integers(0, 3), st.booleans()), min_size=3, max_size=12
    )
)
def test_nobody_who_stops_or_moves_others_delays_the_first_who_waits(
    rows: list[tuple[int, int, int, bool]],
) -> None:
    """All come at once, so that nobody comes before whom something is reserved for."""
    jobs = [
        a_job(f"j{i}", gpus if gpus <= 4 else 4, 1 if gpus <= 4 else 2, priority=priority, **told(length, preemptible))
        for i, (length, gpus, priority, preemptible) in enumerate(rows)
    ]
    world = World(flat(2, 4), "priority:backfill=easy")
    plan, promised, ends = world.submit(*jobs), dict[str, int](), dict[str, int]()
    while plan is not None:
        for each in world.state.reservations:
            promised.setdefault(each.job, each.at_ms)
        plan = carried_out(world, plan, ends)
    assert all(world.state.jobs[job.id].final is not None for job in jobs)
    for job, at_ms in promised.items():
        assert (world.state.jobs[job].first_start_ms or 0) <= at_ms, job


def told(length: int, preemptible: bool) -> dict[str, Any]:
    return {"duration_ms": 1_000 * length, "preemptible": preemptible}


def carried_out(world: World, plan: Plan, ends: dict[str, int]) -> Plan | None:
    """The next plan, with all that was asked for done at once, else once the next jobs have ended; None at the end."""
    actions = [action for action in plan.actions if action.id in world.asked]
    if actions:
        for action in actions:
            record = world.job(action.id.job)
            if isinstance(action, Start):
                left_ms = (record.job.duration_ms or 0) - record.executed_ms(world.now)
                ends[action.id.job] = world.now + left_ms
            elif isinstance(action, Stop):
                del ends[action.id.job]
        return world.turn(*(Done(action.id) for action in actions))
    if not ends:
        return None
    at_ms = min(ends.values())
    over = [job for job, end_ms in ends.items() if end_ms == at_ms]
    for job in over:
        del ends[job]
    ended = (AttemptEnded(job, world.job(job).attempts, Outcome.SUCCEEDED) for job in over)
    return world.turn(*ended, after_ms=at_ms - world.now)


@given(
    st.sampled_from([Reserve.HEAD, Reserve.EVERYBODY]),
    st.sampled_from([NO_COSTS, Costs()]),
    st.lists(
        st.tuples(st.integers(0, 6), st.integers(1, 30), st.sampled_from([1, 2, 4, 8]), st.integers(0, 2)),
        min_size=5,
        max_size=12,
    ),
)
@example(Reserve.HEAD, Costs(), [(10, 10, 4, 0), (6, 10, 8, 1), (4, 10, 2, 1), (10, 10, 4, 2), (10, 10, 4, 2)])
def test_a_policy_may_reserve_for_some_and_stop_others(
    reserve: Reserve, costs: Costs, rows: list[tuple[int, int, int, int]]
) -> None:
    """A claim may be withdrawn, and a victim told to leave, by the very plan that reserves beside them."""
    submits_s = accumulate(row[0] for row in rows)
    jobs = [
        TraceJob(f"j{i}", 1_000 * submit_s, 10_000 * length, gpus, priority=priority)
        for i, (submit_s, (_, length, gpus, priority)) in enumerate(zip(submits_s, rows, strict=True))
    ]
    setup = Setup(flat(1, 8), Trace("t", tuple(jobs)), stops_and_reserves(reserve), costs=costs)
    simulation = Simulation(setup)
    simulation.begin()
    simulation.go(watch=lambda state: state.capacity.check())
    assert all(job.final is not None for job in simulation.run.state.jobs.values())
