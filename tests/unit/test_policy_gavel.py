"""gavel: fair shares of unlike GPUs by a linear program, rounds that realise them, and advice that is journaled."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count, product
from operator import mul

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import a_job, random_arrivals, random_cluster, virtual_backend
from phalanx.advice.allocation import Demand, Goal, allocate, value_of
from phalanx.advice.cheapest import cheapest
from phalanx.advice.gavel import PriceMissingError
from phalanx.advice.registry import adviser
from phalanx.advice.rounds import ELSEWHERE, Contender, Place, Spans, choose
from phalanx.advice.solver import NotSolvedError, SolverMissingError
from phalanx.cluster.cluster import Cluster, Node, flat
from phalanx.cluster.topology import Topology
from phalanx.engine.state.journal import Journal
from phalanx.engine.state.records import JobState
from phalanx.engine.state.state import State
from phalanx.engine.turn import replay, verify
from phalanx.policy.gavel import OBJECTIVES, confined
from phalanx.policy.registry import policy
from phalanx.protocol.event import Advice, Event, JobSubmitted
from phalanx.protocol.plan import Plan
from phalanx.simulate.run import Run, submissions
from phalanx.simulate.simulation import Setup
from phalanx.simulate.studies.batch import run_one
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.world.costs import NO_COSTS, Costs
from phalanx.simulate.world.locality import FLAT_CURVES
from phalanx.simulate.world.speed import SpeedModel
from phalanx.simulate.world.virtual import VirtualBackend
from phalanx.simulate.world.work import Work
from phalanx.workload.job import Job, Kind

needs_solver = pytest.mark.needs("highspy")

ROUND_MS = 360_000
ENDLESS = None

PICKY = (("model", "resnet50"),)
"""A convolution: 7 times as fast on a V100 as on a K80."""

EASY = (("model", "recommendation"),)
"""As fast on a K80."""


def typed(*types: str, gpus: int = 1) -> Cluster:
    """One node of each type, named as its type in small letters."""
    return Cluster(tuple(Node(name.lower(), (), gpus, name) for name in types))


Given = tuple[int, Job, int | None]
"""When a job is submitted, and how long it lasts on a V100."""


def a_run(cluster: Cluster, given: Iterable[Given], policy: str = "gavel", costs: Costs = NO_COSTS) -> Run:
    """A run in which jobs are as fast as the GPUs they lie on."""
    jobs = list(given)
    works = {job.id: Work(duration_ms, job=job) for _, job, duration_ms in jobs}
    speed = SpeedModel(Topology(cluster), FLAT_CURVES, measured_on="V100")
    backend = VirtualBackend(works, costs, speed)
    run = Run.of(cluster, policy, backend, submissions((at_ms, job) for at_ms, job, _ in jobs))
    if run.state.policy.adviser:
        run.adviser = adviser(run.state.policy.adviser)
    return run


def go(run: Run, until_ms: int) -> State:
    """Lets a run go on until a moment."""
    while (at_ms := run.next_moment()) is not None and at_ms <= until_ms:
        run.step()
    return run.state


def where(state: State, job: str) -> str:
    """The first node that a job lies on."""
    attempt = state.jobs[job].attempt
    return attempt.placement.slots[0].node if attempt is not None else ""


def advices(journal: Journal) -> list[tuple[int, Advice]]:
    return [(record.now, record.body) for record in journal.records if isinstance(record.body, Advice)]


def test_the_solver_that_is_missing_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(SolverMissingError, match=r"needs the solver highspy.*pip install highspy"):
        adviser("gavel")


def test_an_unknown_adviser_is_named_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"unknown adviser 'oracle' \(known: gavel, themis\)"):
        adviser("oracle")


@needs_solver
def test_who_is_fast_on_one_type_only_has_it_and_who_does_not_mind_has_the_other() -> None:
    # An equal share is worth 0.57 to the first and 1 to the second, who can have no more than that.
    picky, easy = Demand((1.0, 1.0), (1.0, 0.14)), Demand((1.0, 1.0), (1.0, 1.0))
    assert allocate(((picky, 1), (easy, 1)), (1.0, 1.0)) == ((1.0, 0.0), (0.0, 1.0))


@needs_solver
def test_two_who_both_prefer_one_type_have_half_of_each() -> None:
    # With the part a of the V100 the measures are (1 + 3a) / 2.5 and (2 - a) / 1.5: both 1 at 1/2, else one is less.
    jobs = ((Demand((1.0, 1.0), (4.0, 1.0)), 1), (Demand((1.0, 1.0), (2.0, 1.0)), 1))
    assert allocate(jobs, (1.0, 1.0)) == ((0.5, 0.5), (0.5, 0.5))


@needs_solver
def test_three_jobs_on_two_types_gain_over_equal_shares() -> None:
    # Equal shares would be a third of each type: measures of 2/3. The third job, for whom both are alike, is content
    # with K80 time t; the others share what is left. With x of the V100 to the first: (2x + y) / 1.5 = t and
    # (4(1 - x) + z) / 2.5 = t, y + z = 1 - t. All of y to the first: 2x + 1 - t = 1.5t, 4 - 4x = 2.5t give t = 6 / 7.5.
    jobs = tuple((Demand((1.0, 1.0), (fast, 1.0)), 1) for fast in (2.0, 4.0, 1.0))
    shares = allocate(jobs, (1.0, 1.0))
    assert levels(jobs, shares, (1.0, 1.0)) == pytest.approx([0.8, 0.8, 0.8])


@needs_solver
def test_what_one_cannot_use_is_shared_by_the_rest() -> None:
    # One GPU all the time is the most that the small one can have; the other has 7 of 8 GPUs' worth of time.
    small, large = Demand((1.0,), (1.0,)), Demand((8.0,), (1.0,))
    assert allocate(((small, 1), (large, 1)), (8.0,)) == ((1.0,), (0.875,))


@needs_solver
def test_shares_go_by_weight() -> None:
    jobs = ((Demand((1.0,), (1.0,), weight=2.0), 1), (Demand((1.0,), (1.0,)), 1))
    assert allocate(jobs, (1.0,)) == ((0.666666667,), (0.333333333,))


@needs_solver
def test_jobs_that_ask_for_the_same_are_one_group_with_one_share() -> None:
    demand = Demand((1.0, 1.0), (1.0, 0.5))
    ((on_first, on_second),) = allocate(((demand, 8),), (2.0, 2.0))
    assert (on_first, on_second) == (0.25, 0.25)


def levels(groups: Groups, shares: Iterable[Iterable[float]], capacity: tuple[float, ...]) -> list[float]:
    """How fairly each group is treated: the measure that the least of is to be as great as can be."""
    return [
        sum(value_of(demand, k, capacity) * share for k, share in enumerate(own))
        for (demand, _), own in zip(groups, shares, strict=True)
    ]


def is_within(groups: Groups, shares: Iterable[tuple[float, ...]], capacity: tuple[float, ...]) -> bool:
    """Whether nobody has more than all the time, and no type gives more than it has."""
    shares = list(shares)
    used = [
        sum(jobs * demand.gpus[k] * own[k] for (demand, jobs), own in zip(groups, shares, strict=True))
        for k in range(len(capacity))
    ]
    return all(sum(own) <= 1 + 1e-6 for own in shares) and all(
        use <= there + 1e-6 * (1 + there) for use, there in zip(used, capacity, strict=True)
    )


Groups = tuple[tuple[Demand, int], ...]
SIZES = st.sampled_from([1.0, 2.0, 4.0])
SPEEDS = st.tuples(st.sampled_from([0.14, 0.5, 1.0, 3.0]), st.sampled_from([0.14, 0.5, 1.0, 3.0]))
DEMANDS = st.builds(
    lambda size, speeds, weight: Demand((size, size), speeds, weight), SIZES, SPEEDS, st.sampled_from([1.0, 2.0])
)
GROUPS = st.lists(st.tuples(DEMANDS, st.integers(1, 3)), min_size=2, max_size=2, unique_by=lambda group: group[0])
CAPACITIES = st.tuples(st.sampled_from([4.0, 6.0, 9.0]), st.sampled_from([4.0, 8.0]))


def grid(groups: Groups, capacity: tuple[float, ...]) -> Iterator[tuple[tuple[float, float], ...]]:
    """Allocations in eighths that are within what there is."""
    eighths = [(a / 8, b / 8) for a in range(9) for b in range(9 - a)]
    for shares in product(eighths, repeat=len(groups)):
        if is_within(groups, shares, capacity):
            yield shares


@needs_solver
@settings(max_examples=40)
@given(groups=GROUPS.map(tuple), capacity=CAPACITIES)
def test_no_allocation_is_fairer_to_the_worst_off_nor_then_to_the_next(
    groups: Groups, capacity: tuple[float, ...]
) -> None:
    shares = allocate(groups, capacity)
    assert is_within(groups, shares, capacity)
    found = sorted(levels(groups, shares, capacity))
    for other in grid(groups, capacity):
        worst, next_worst = sorted(levels(groups, other, capacity))
        assert worst <= found[0] + 1e-6
        assert worst < found[0] - 1e-6 or next_worst <= found[1] + 1e-6


@needs_solver
@settings(max_examples=40)
@given(
    groups=st.lists(st.tuples(DEMANDS, st.integers(1, 40)), min_size=1, max_size=12, unique_by=lambda group: group[0])
)
def test_many_groups_stay_within_what_there_is_and_are_solved_alike_every_time(
    groups: list[tuple[Demand, int]],
) -> None:
    asked = tuple(sorted(groups))
    shares = allocate(asked, (16.0, 48.0))
    assert is_within(asked, shares, (16.0, 48.0))
    allocate.cache_clear()
    assert allocate(asked, (16.0, 48.0)) == shares


ALIKE, UNLIKE = (1.0, 1.0), (1.0, 0.25)


def contender(
    job: str, shares: tuple[float, ...], owed_ms: int, lies_on: int | None = None, speeds: tuple[float, ...] = ALIKE
) -> Contender:
    places = {k: Place(1.0, speeds[k], share) for k, share in enumerate(shares)}
    return Contender(job, int(job), places, lies_on, owed_ms)


def test_who_is_furthest_behind_its_share_is_targeted_first() -> None:
    # 60 s behind a share of 1/10 is ten minutes; 240 s behind one of 1/2 is eight.
    behind = [contender("0", (0.5,), 240_000), contender("1", (0.1,), 60_000), contender("2", (0.9,), -1_000)]
    choice = choose(behind, (2.0,))
    assert choice.targets == {"1": 0, "0": 0}
    assert choice.order == ("1", "0", "2")


def test_of_two_who_are_equally_far_behind_who_lies_there_stays() -> None:
    assert choose([contender("0", (0.5,), 0), contender("1", (0.5,), 0, lies_on=0)], (1.0,)).targets == {"1": 0}


def test_who_picks_takes_the_fastest_of_its_types_that_has_room() -> None:
    both = [contender(job, (0.5, 0.5), owed_ms, speeds=UNLIKE) for job, owed_ms in (("0", 1_000), ("1", 9_000))]
    assert choose(both, (1.0, 1.0)).targets == {"1": 0, "0": 1}


def test_who_lies_on_a_type_of_its_shares_stays_there_while_there_is_room() -> None:
    waits, lies = contender("0", (1.0, 0.0), 9_000), contender("1", (0.5, 0.5), 1_000, lies_on=0)
    assert choose([waits, lies], (2.0, 1.0)).targets == {"0": 0, "1": 0}
    assert choose([waits, lies], (1.0, 1.0)).targets == {"0": 0, "1": 1}


def test_who_lies_on_a_type_it_has_no_share_of_is_targeted_at_one_that_it_has() -> None:
    assert choose([contender("0", (1.0, 0.0), 0, lies_on=1)], (1.0, 1.0)).targets == {"0": 0}


def test_who_needs_several_types_takes_what_is_left_of_all() -> None:
    large = Contender("0", 0, {ELSEWHERE: Place(5.0, 1.0, 0.5)}, owed_ms=9_000)
    others = [contender(str(job), (1.0, 1.0), 0) for job in range(1, 5)]
    choice = choose([large, *others], (4.0, 3.0))
    assert choice.targets["0"] == ELSEWHERE
    assert len(choice.targets) == 3, "2 GPUs are left"
    assert "0" not in choose([large, *others], (2.0, 2.0)).targets


def test_what_is_owed_grows_with_the_shares_and_falls_with_the_work_that_was_done() -> None:
    for lies_on, done_ms in ((0, 100_000), (1, 25_000), (None, 0)):
        job = contender("0", (0.5, 0.2), 0, lies_on, UNLIKE)
        job.settle(7_000, {0: 0.5, 1: 0.2}, Spans(ROUND_MS, 120_000, 100_000))
        assert job.owed_ms == 7_000 + 60_000 + 6_000 - done_ms


def test_no_more_is_owed_than_ten_rounds() -> None:
    job = contender("0", (0.5,), 0)
    job.settle(0, {0: 0.5}, Spans(ROUND_MS, 1_000 * ROUND_MS, 0))
    assert job.owed_ms == 10 * ROUND_MS


@needs_solver
def test_jobs_that_share_a_gpu_take_turns_of_a_round() -> None:
    run = a_run(flat(1, 1), ((0, a_job(name), ENDLESS) for name in "abc"))
    turns = []
    for turn in range(9):
        state = go(run, turn * ROUND_MS + 1_000)
        turns.append("".join(job for job in "abc" if state.jobs[job].attempt is not None))
    assert sorted(turns[:3]) == ["a", "b", "c"], turns
    assert all(state.jobs[job].executed_ms(8 * ROUND_MS) >= 2 * ROUND_MS for job in "abc"), turns


@needs_solver
def test_over_time_everybody_receives_their_share() -> None:
    weights = {"a": "2", "b": "1", "c": "1"}
    jobs = [a_job(name, labels=(("weight", weight),)) for name, weight in weights.items()]
    state = go(a_run(flat(1, 1), ((0, job, ENDLESS) for job in jobs)), 40 * ROUND_MS)
    received = {job: state.jobs[job].executed_ms(state.now) / ROUND_MS for job in weights}
    assert received == {"a": pytest.approx(20, abs=1), "b": pytest.approx(10, abs=1), "c": pytest.approx(10, abs=1)}


@needs_solver
def test_who_has_its_place_all_the_time_is_never_stopped_and_nobody_wakes_for_it() -> None:
    run = a_run(flat(1, 4), ((0, a_job(name, 2), 50 * ROUND_MS) for name in "ab"))
    state = run.finish()
    assert [state.jobs[name].attempts for name in "ab"] == [1, 1]
    assert len(advices(run.journal)) <= 3, "one at the arrival, one after the starts"
    assert state.now == 50 * ROUND_MS, "the end of the last job is the end of the run"
    assert state.next_wakeup() is None


@needs_solver
def test_a_job_that_never_fits_wakes_nobody() -> None:
    run = a_run(flat(1, 4), [(0, a_job("huge", 8), ENDLESS), (5_000, a_job("a", 4), 1_000_000)])
    assert run.finish(steps_max=50).now < 1_000_000 + 2 * ROUND_MS


@needs_solver
def test_a_job_that_only_waits_for_what_may_not_be_stopped_wakes_nobody() -> None:
    run = a_run(flat(1, 1), [(0, a_job("fixed", preemptible=False), ENDLESS), (5_000, a_job("waits"), 1_000)])
    state = run.finish(steps_max=50)
    assert state.jobs["waits"].state is JobState.WAITING
    assert state.jobs["fixed"].attempts == 1


@needs_solver
def test_who_arrives_within_a_round_takes_what_is_free_and_stops_nobody_before_the_next() -> None:
    given = [(0, a_job("a", 2), ENDLESS), (0, a_job("b", 2), ENDLESS), (0, a_job("small"), 60_000)]
    given += [(100_000, a_job("free"), ENDLESS), (100_000, a_job("late", 3), ENDLESS)]
    state = go(run := a_run(flat(1, 3), given), 100_000)
    assert where(state, "free")
    assert not where(state, "late")
    assert not state.jobs["a"].preemptions + state.jobs["b"].preemptions
    assert where(go(run, 4 * ROUND_MS), "late") or state.jobs["late"].executed_before_ms


def ends(cluster: Cluster, policy: str) -> dict[str, int | None]:
    """When an easy and a picky job end that arrive together, the easy one first; each lasts an hour on a V100."""
    given = [(0, a_job("easy", labels=EASY), 3_600_000), (0, a_job("picky", labels=PICKY), 3_600_000)]
    state = a_run(cluster, given, policy).finish()
    return {job: record.ended_ms for job, record in state.jobs.items()}


@needs_solver
@pytest.mark.parametrize("blind", ["fifo", "priority"])
def test_unlike_other_policies_it_gives_the_fast_gpu_to_who_needs_it_and_only_where_gpus_differ(blind: str) -> None:
    assert ends(typed("V100", "K80"), "gavel") == {"easy": 3_600_000, "picky": 3_600_000}
    assert ends(typed("V100", "K80"), blind) == {"easy": 3_600_000, "picky": 25_714_286}, "3,600 s over 0.14"
    assert ends(typed("one", "other"), "gavel") == ends(typed("one", "other"), blind)


@needs_solver
def test_a_newcomer_that_needs_the_fast_gpu_gets_it_from_who_does_not() -> None:
    # All three have t of an equal share: the picky one 0.57 t of the V100, the others 2 t of what is left of both GPUs.
    # 0.57 t + 2 t = 2.
    given = [(0, a_job("easy", labels=EASY), ENDLESS), (0, a_job("other", labels=EASY), ENDLESS)]
    given += [(10_000, a_job("picky", labels=PICKY), ENDLESS)]
    state = go(run := a_run(typed("V100", "K80"), given), 9_000)
    assert {where(state, "easy"), where(state, "other")} == {"v100", "k80"}
    state = go(run, 11_000)
    assert where(state, "picky") == "v100"
    state = go(run, 30 * ROUND_MS)
    assert state.jobs["picky"].executed_ms(state.now) == pytest.approx(30 * ROUND_MS * 0.57 * 2 / 2.57, abs=ROUND_MS)


@needs_solver
def test_who_would_go_much_faster_elsewhere_moves_there_once_there_is_room() -> None:
    given = [(0, a_job("first", labels=PICKY), 1_000_000), (0, a_job("picky", labels=PICKY), ENDLESS)]
    state = go(run := a_run(typed("V100", "K80"), given), 10_000)
    assert {where(state, "first"), where(state, "picky")} == {"v100", "k80"}
    assert where(go(run, 30_000_000), "picky") == "v100"


@needs_solver
def test_two_who_both_prefer_one_type_take_turns_on_it() -> None:
    run = a_run(typed("V100", "K80"), ((0, a_job(name, labels=PICKY), ENDLESS) for name in "ab"))
    turns = []
    for turn in range(20):
        state = go(run, turn * ROUND_MS + 1_000)
        turns.append(next(name for name in "ab" if where(state, name) == "v100"))
    assert abs(turns.count("a") - turns.count("b")) <= 2, turns


@needs_solver
def test_who_would_find_no_place_there_is_not_stopped_to_move() -> None:
    # Of two nodes of V100s each has one that is free: no place for a gang of two, which stays on K80s.
    nodes = [Node(f"v{i}", (), 2, "V100") for i in range(2)] + [Node("k", (), 2, "K80")]
    fixed = [a_job(f"fixed{i}", preemptible=False, task={"gpu_types": ("V100",)}) for i in range(2)]
    fillers = [a_job(f"filler{i}", task={"gpu_types": ("V100",)}) for i in range(2)]
    given: list[Given] = [
        (0, fixed[0], ENDLESS),
        (0, fillers[0], 1_000),
        (0, fixed[1], ENDLESS),
        (0, fillers[1], 1_000),
        (5_000, a_job("gang", 2, labels=PICKY), ENDLESS),
    ]
    state = go(a_run(Cluster(tuple(nodes)), given), 10 * ROUND_MS)
    assert where(state, "gang") == "k"
    assert state.jobs["gang"].attempts == 1


@needs_solver
def test_who_finds_no_place_on_its_target_takes_another_type() -> None:
    # Two V100s are free, but on two nodes: the gang of two has its target there and no place.
    nodes = [Node(f"v{i}", (), 2, "V100") for i in range(2)] + [Node("k", (), 2, "K80")]
    fixed = [a_job(f"fixed{i}", preemptible=False, task={"gpu_types": ("V100",)}) for i in range(2)]
    fillers = [a_job(f"filler{i}", task={"gpu_types": ("V100",)}) for i in range(2)]
    given: list[Given] = [
        (0, fixed[0], ENDLESS),
        (0, fillers[0], 1_000),
        (0, fixed[1], ENDLESS),
        (0, fillers[1], 1_000),
    ]
    run = a_run(Cluster(tuple(nodes)), [*given, (5_000, a_job("gang", 2, labels=PICKY), ENDLESS)])
    state = go(run, 5_000)
    assert {where(state, job.id) for job in fixed} == {"v0", "v1"}
    assert state.memory["types"][state.memory["targets"]["gang"]] == "V100"
    assert where(go(run, 5_001), "gang") == "k"


@needs_solver
def test_a_gang_that_needs_several_types_has_its_turns_too() -> None:
    given = [(0, a_job("large", 1, 3), ENDLESS), *((0, a_job(name), ENDLESS) for name in "abcd")]
    state = go(a_run(typed("V100", "K80", gpus=2), given), 20 * ROUND_MS)
    assert state.jobs["large"].executed_ms(state.now) == pytest.approx(20 * ROUND_MS * 4 / 5 / 3, abs=2 * ROUND_MS)


@needs_solver
def test_types_that_a_job_does_not_name_are_not_for_it() -> None:
    jobs = [a_job(name, labels=EASY, task={"gpu_types": ("K80",)}) for name in "ab"]
    run = a_run(typed("V100", "K80"), ((0, job, ENDLESS) for job in jobs))
    for turn in range(5):
        assert {where(go(run, turn * ROUND_MS), name) for name in "ab"} == {"", "k80"}


@needs_solver
def test_services_are_left_alone_and_the_rest_take_turns() -> None:
    given = [(0, a_job("service", kind=Kind.SERVICE), ENDLESS), *((0, a_job(name), ENDLESS) for name in "ab")]
    state = go(a_run(flat(1, 2), given), 10 * ROUND_MS)
    assert state.jobs["service"].attempts == 1
    assert all(state.jobs[name].preemptions >= 2 for name in "ab")


@needs_solver
def test_the_length_of_a_round_is_a_parameter() -> None:
    run = a_run(flat(1, 1), ((0, a_job(name), ENDLESS) for name in "ab"), "gavel:round=60")
    go(run, 300_000)
    assert [now for now, _ in advices(run.journal)] == [0, 60_000, 120_000, 180_000, 240_000, 300_000]


def test_a_round_of_no_length_is_refused() -> None:
    with pytest.raises(ValueError, match="policy gavel: round=0: expected at least 1"):
        policy("gavel:round=0")


def test_where_nobody_advises_whoever_fits_runs() -> None:
    jobs = {"a": 5_000_000, "b": 3_000_000, "c": 1_000}
    run = Run.of(flat(1, 2), "gavel", virtual_backend(jobs), submissions((0, a_job(job)) for job in jobs))
    state = run.finish(steps_max=100)
    assert all(record.state is JobState.SUCCEEDED for record in state.jobs.values())


@needs_solver
def test_names_of_jobs_and_types_may_be_anything() -> None:
    names = ("a job 7", "type 0", "rest", " ", "ü/2")
    run = a_run(typed("Tesla V100 32", "rank x"), ((0, a_job(name), 1_000_000) for name in names))
    state = run.finish()
    assert all(record.state is JobState.SUCCEEDED for record in state.jobs.values())
    assert state.memory["types"] == ["Tesla V100 32", "rank x"]
    assert {name for _, advice in advices(run.journal) for name in ranks(advice)} == set(names)


def ranks(advice: Advice) -> list[str]:
    return [entry.removeprefix("rank ") for entry in advice.body if entry.startswith("rank ")]


@needs_solver
def test_what_is_advised_is_within_what_there_is() -> None:
    run = busy_run()
    assert len(advices(run.journal)) > 10
    for _, advice in advices(run.journal):
        types = [entry.removeprefix("type ") for entry in advice.body if entry.startswith("type ")]
        shares = {entry: value for entry, value in advice.body.items() if entry.startswith("share ")}
        assert all(0 < share <= 1 for share in shares.values())
        for k, name in enumerate(types):
            there = sum(node.gpus for node in random_cluster().nodes if node.gpu_type == name)
            used = sum(
                value * run.state.jobs[entry.split(" ", 2)[2]].job.gang.gpus_min
                for entry, value in shares.items()
                if entry.startswith(f"share {k} ")
            )
            assert used <= there * (1 + 1e-6)


def busy_run() -> Run:
    """Jobs of every kind on two GPU types, with nodes that fail and come back."""
    arrivals = list(random_arrivals(7, 150))
    durations = {event.job.id: 40_000 + 7_919 * i % 900_000 for i, event in enumerate(submitted(arrivals))}
    backend = virtual_backend(durations, start_ms=2_000, stop_ms=5_000)
    run = Run.of(random_cluster(), "gavel", backend, arrivals)
    run.adviser = adviser("gavel")
    run.finish(steps_max=20_000)
    return run


def submitted(arrivals: Iterable[tuple[int, Event]]) -> list[JobSubmitted]:
    return [event for _, event in arrivals if isinstance(event, JobSubmitted)]


@needs_solver
def test_the_same_run_has_the_same_digest() -> None:
    first = busy_run()
    allocate.cache_clear()
    assert str(busy_run().state.digest) == str(first.state.digest)


@needs_solver
def test_a_recorded_run_is_replayed_and_verified_without_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    run = busy_run()
    assert any(isinstance(record.body, Plan) for record in run.journal.records)
    monkeypatch.setitem(sys.modules, "highspy", None)
    allocate.cache_clear()
    assert verify(run.journal).fingerprint() == run.state.fingerprint()
    assert replay(run.journal).fingerprint() == run.state.fingerprint()


def test_a_gang_is_confined_in_all_its_tasks_that_take_gpus() -> None:
    gang = a_job("a", 2, task={"gpu_types": ("V100", "K80")}).gang
    assert confined(gang, "K80").roles[0].task.gpu_types == ("K80",)
    without = a_job("cpu", 0).gang
    assert confined(without, "K80") == without


FAST, SLOW = "V100", "K80"


@needs_solver
def test_makespan_gives_more_to_who_has_more_left() -> None:
    short, long = Demand((1.0,), (1.0,), left_s=100.0), Demand((1.0,), (1.0,), left_s=300.0)
    assert allocate(((short, 1), (long, 1)), (1.0,), Goal("makespan")) == ((0.25,), (0.75,))


WIDE_SPEEDS = st.tuples(*3 * [st.sampled_from([0.14, 0.3, 0.5, 0.7, 1.0])])
LEFT_S = st.sampled_from([1.0, 1.7e2, 4.3e3, 9.9e4, 2.1e6, 5.8e7])
TIMED = st.builds(
    lambda size, speeds, left_s, waited: Demand(
        3 * (size,), speeds, left_s=left_s, elapsed_s=waited * left_s, ideal_s=3 * left_s
    ),
    SIZES,
    WIDE_SPEEDS,
    LEFT_S,
    st.sampled_from([0.0, 0.5, 4.0]),
)


@needs_solver
@settings(max_examples=60, deadline=None)
@given(
    groups=st.lists(st.tuples(TIMED, st.integers(1, 3)), min_size=4, max_size=24, unique_by=lambda group: group[0]),
    objective=st.sampled_from(["makespan", "finish_time"]),
)
def test_whatever_is_left_of_jobs_seconds_or_years_there_is_an_answer(
    groups: list[tuple[Demand, int]], objective: str
) -> None:
    asked, capacity = tuple(sorted(groups)), (8.0, 8.0, 8.0)
    shares = allocate(asked, capacity, Goal(objective))
    assert is_within(asked, shares, capacity)
    # Water filling leaves nobody without who could have more: either all time is given, or all types are.
    used = [sum(n * d.gpus[k] * own[k] for (d, n), own in zip(asked, shares, strict=True)) for k in range(3)]
    assert all(sum(own) > 1 - 1e-4 for own in shares) or all(use > 8.0 - 1e-3 for use in used)


@needs_solver
@settings(max_examples=30, deadline=None)
@given(groups=st.lists(st.tuples(TIMED, st.integers(1, 3)), min_size=2, max_size=8, unique_by=lambda group: group[0]))
def test_the_unit_in_which_work_is_counted_makes_no_difference_to_makespan(groups: list[tuple[Demand, int]]) -> None:
    asked, capacity = tuple(sorted(groups)), (6.0, 6.0, 6.0)
    longer = tuple((replace(demand, left_s=1e6 * demand.left_s), jobs) for demand, jobs in asked)
    rates = [
        sorted(sum(map(mul, demand.speeds, own)) for (demand, _), own in zip(asked, shares, strict=True))
        for shares in (allocate(asked, capacity, Goal("makespan")), allocate(longer, capacity, Goal("makespan")))
    ]
    assert rates[0] == pytest.approx(rates[1], abs=1e-5)


@needs_solver
def test_who_has_a_minute_left_and_who_has_months_end_together_where_all_is_one_type() -> None:
    """Makespan by hand: on one GPU everybody has time in proportion to what is left of them."""
    left_s = (60.0, 86_400.0, 8_640_000.0)
    shares = allocate(tuple((Demand((1.0,), (1.0,), left_s=each), 1) for each in left_s), (1.0,), Goal("makespan"))
    assert [share for (share,) in shares] == pytest.approx([each / sum(left_s) for each in left_s], rel=1e-3, abs=1e-9)


@needs_solver
def test_makespan_is_answered_where_one_is_all_but_done_and_others_have_days() -> None:
    """Values of 1 beside some of a millionth: what is feasible must not be taken for what is not."""
    slow, fair, easy = (1.0, 0.14, 0.69), (1.0, 0.25, 0.84), (1.0, 1.0, 1.0)
    left_s = ((slow, 1.0), (slow, 12e3), (slow, 28e3), (slow, 67e3), (fair, 140e3), (easy, 250e3), (easy, 251e3))
    ones = [(Demand(3 * (1.0,), speeds, left_s=each), 1) for speeds, each in left_s]
    groups = (*ones, (Demand(3 * (8.0,), slow, left_s=3.5e3), 1))
    shares = allocate(groups, (8.0, 8.0, 8.0), Goal("makespan"))
    done_s = [
        demand.left_s / sum(map(mul, demand.speeds, own)) for (demand, _), own in zip(groups, shares, strict=True)
    ]
    assert is_within(groups, shares, (8.0, 8.0, 8.0))
    assert max(done_s) == pytest.approx(251e3), "nobody ends before the longest does alone"


@needs_solver
def test_all_rounds_of_a_trace_with_jobs_of_seconds_and_of_days_are_answered_for_makespan() -> None:
    cluster = typed("V100", "K80", "P100", gpus=8)
    jobs = [
        (400_000 * i, a_job(f"j{i}", (1, 1, 2, 8)[i % 4], labels=(PICKY, EASY, ())[i % 3]), 1000 * 7 ** (i % 7))
        for i in range(36)
    ]
    known = [(at_ms, replace(job, duration_ms=work_ms), work_ms) for at_ms, job, work_ms in jobs]
    state = a_run(cluster, known, "gavel:objective=makespan").finish()
    assert all(record.final is JobState.SUCCEEDED for record in state.jobs.values())
    assert state.memory["round"] > 50
    assert state.memory["kept"] == 0


@needs_solver
def test_finish_time_fairness_gives_all_the_same_rho() -> None:
    """One GPU. Alone on half of it each would take 200 s. One has waited for 100 s: with a share x it is done after
    100 + 100/x, the other after 100/(1 − x): both have the same ρ at x = (√5 − 1)/2 = 0.618.
    """
    waited = Demand((1.0,), (1.0,), left_s=100.0, elapsed_s=100.0, ideal_s=200.0)
    fresh = Demand((1.0,), (1.0,), left_s=100.0, ideal_s=200.0)
    ((first,), (second,)) = allocate(((waited, 1), (fresh, 1)), (1.0,), Goal("finish_time"))
    assert first == pytest.approx((5**0.5 - 1) / 2, abs=1e-4)
    assert 100 + 100 / first == pytest.approx(100 / second, rel=1e-3)


@needs_solver
def test_without_water_filling_only_the_least_is_raised() -> None:
    """One may use only the first type. Half of that gives it as much, measured by an equal share, as the other can
    have at most; the rest of it is of use to nobody else, and is left over unless levels are raised further.
    """
    bound, free = Demand((1.0, 0.0), (0.1, 0.0)), Demand((1.0, 1.0), (1.0, 1.0))
    assert allocate(((bound, 1), (free, 1)), (1.0, 1.0)) == ((1.0, 0.0), (0.0, 1.0))
    assert allocate(((bound, 1), (free, 1)), (1.0, 1.0), Goal(water_filling=False))[0] == (0.5, 0.0)


@needs_solver
@pytest.mark.parametrize("fast", ["H100", "V100"])
def test_the_cheapest_meets_a_deadline_whatever_the_type_that_durations_are_of(fast: str) -> None:
    """The one in time has the fast GPU for 10 of 11 hours, all of which it needs; two others can wait."""
    cluster = Cluster((Node("fast", (), 1, fast, price_usd_h=2.0), Node("slow", (), 1, "K80", price_usd_h=0.2)))
    late = (TraceJob("x", 0, 36_000_000, 1), TraceJob("y", 0, 36_000_000, 1))
    jobs = (*late, TraceJob("in time", 0, 36_000_000, 1, deadline_ms=40_000_000))
    chosen = "gavel:objective=cost"
    result = run_one(Setup(cluster, Trace("t", jobs), chosen, costs=NO_COSTS), chosen)
    assert result.summary["deadlines"]["met"] == 1


@needs_solver
def test_the_cheapest_does_the_most_for_a_dollar_unless_a_deadline_needs_more() -> None:
    """The fast type is three times as fast and ten times as dear."""
    goal = Goal("cost", prices=(10.0, 1.0))
    easy = Demand((1.0, 1.0), (3.0, 1.0))
    assert cheapest(((easy, 1),), (1.0, 1.0), goal) == ((0.0, 1.0),)
    pressed = Demand((1.0, 1.0), (3.0, 1.0), least_speed=2.0)
    ((fast, slow),) = cheapest(((pressed, 1),), (1.0, 1.0), goal)
    assert [fast, slow] == pytest.approx([0.5, 0.5])


@needs_solver
def test_deadlines_that_cannot_all_be_met_are_given_up_the_hardest_first() -> None:
    goal = Goal("cost", prices=(1.0,))
    hard, fair = Demand((1.0,), (1.0,), least_speed=0.9), Demand((1.0,), (1.0,), least_speed=0.6)
    ((first,), (second,)) = cheapest(((hard, 1), (fair, 1)), (1.0,), goal)
    assert second >= 0.6 - 1e-6
    assert first + second == pytest.approx(1.0)


@needs_solver
def test_for_cost_a_job_waits_for_the_cheap_type_though_a_dear_one_is_idle() -> None:
    cluster = Cluster((Node("v100", (), 1, FAST, price_usd_h=10.0), Node("k80", (), 1, SLOW, price_usd_h=0.5)))
    jobs = [(0, a_job(f"j{i}", labels=EASY, duration_ms=900_000), 900_000) for i in range(2)]
    run = a_run(cluster, jobs, "gavel:objective=cost")
    go(run, 60_000)
    assert sorted(where(run.state, f"j{i}") for i in range(2)) == ["", "k80"]
    run = a_run(cluster, jobs)
    go(run, 60_000)
    assert sorted(where(run.state, f"j{i}") for i in range(2)) == ["k80", "v100"]


@needs_solver
def test_cost_without_prices_is_an_error_that_names_the_type() -> None:
    with pytest.raises(PriceMissingError, match="needs what GPUs of type V100 cost: give their nodes a price"):
        a_run(typed(FAST), [(0, a_job("a"), 1000)], "gavel:objective=cost").finish()


@needs_solver
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_comes_to_an_end_and_is_replayed_without_a_solver(
    objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster((Node("v100", (), 2, FAST, price_usd_h=5.0), Node("k80", (), 2, SLOW, price_usd_h=1.0)))
    jobs = [
        (60_000 * i, a_job(f"j{i}", 1 + i % 2, labels=(PICKY, EASY)[i % 2], duration_ms=1_200_000), 1_200_000)
        for i in range(8)
    ]
    run = a_run(cluster, jobs, f"gavel:objective={objective}")
    run.finish()
    assert all(record.final is JobState.SUCCEEDED for record in run.state.jobs.values())
    monkeypatch.setitem(sys.modules, "highspy", None)
    assert str(verify(run.journal).digest) == str(run.state.digest)


@needs_solver
def test_a_solver_that_gives_up_leaves_the_last_advice_in_place_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [(0, a_job("a", labels=PICKY), ENDLESS), (0, a_job("b", labels=PICKY), ENDLESS)]
    run = a_run(typed(FAST), jobs)
    go(run, 0)
    before = dict(run.state.memory["ranks"])

    def fails(*_: object) -> None:
        raise NotSolvedError("the solver gave up")

    monkeypatch.setattr("phalanx.advice.gavel.allocate", fails)
    go(run, 3 * ROUND_MS)
    assert run.state.memory["kept"] == 3
    assert run.state.memory["ranks"] == before
    verify(run.journal)


def many(**told: float) -> Groups:
    """So many unlike jobs that to solve for them takes longer than no time."""
    speeds = [(1.0, 0.1 + 0.01 * i) for i in range(60)]
    return tuple((Demand((1.0, 1.0), each, left_s=100.0 + 7 * i, **told), 1) for i, each in enumerate(speeds))


@needs_solver
def test_all_programs_of_one_answer_have_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each program is given a second of a clock, and ten are allowed in all: levels and halves are many more."""
    clock = count()
    monkeypatch.setattr("phalanx.advice.solver.monotonic", lambda: float(next(clock)))
    groups = many(elapsed_s=50.0, ideal_s=400.0)
    allocate.cache_clear()
    for objective, capacity in (("makespan", (50.0, 50.0)), ("finish_time", (8.0, 8.0))):
        with pytest.raises(NotSolvedError, match="found no answer within 10 s"):
            allocate(groups, capacity, Goal(objective, timeout_s=10.0))
        assert len(allocate(groups, capacity, Goal(objective, timeout_s=1000.0))) == len(groups)
    pressed = many(least_speed=1.0)
    with pytest.raises(NotSolvedError, match="found no answer within 10 s"):
        cheapest(pressed, (8.0, 8.0), Goal("cost", timeout_s=10.0, prices=(1.0, 1.0)))
    assert len(cheapest(pressed, (8.0, 8.0), Goal("cost", timeout_s=1000.0, prices=(1.0, 1.0)))) == len(pressed)


@needs_solver
def test_a_solver_that_runs_out_of_time_does_not_make_a_deadline_impossible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a nanosecond is enough for nothing: it must not be taken for jobs whose deadlines have to be given up."""
    monkeypatch.setattr("phalanx.advice.solver.Deadline.left_s", lambda _: 5e-10)
    with pytest.raises(NotSolvedError, match="not solved: Time limit reached"):
        cheapest(many(least_speed=0.05), (8.0, 8.0), Goal("cost", prices=(1.0, 1.0)))


@needs_solver
def test_with_space_sharing_two_jobs_have_halves_of_one_gpu_and_both_are_done_sooner() -> None:
    """Two of 1000 s on one V100. In turns one is done at 2000 s; as a pair, at 0.62 of the speed each, at 1613 s."""
    jobs = [(0, a_job(f"j{i}", labels=PICKY, duration_ms=1_000_000), 1_000_000) for i in range(2)]
    run = a_run(typed(FAST), jobs, "gavel:space_sharing=true")
    go(run, 1000)
    slots = [record.attempt.placement.slots[0] for record in run.state.jobs.values() if record.attempt is not None]
    assert [slot.portion is not None for slot in slots] == [True, True]
    assert slots[0].devices == slots[1].devices
    run.finish()
    ends = [record.ended_ms or 0 for record in run.state.jobs.values()]
    assert max(ends) == pytest.approx(1_613_000, rel=0.05)
    alone = a_run(typed(FAST), jobs)
    alone.finish()
    assert max(record.ended_ms or 0 for record in alone.state.jobs.values()) >= 2_000_000
    verify(run.journal)


@needs_solver
def test_where_there_is_enough_nobody_shares() -> None:
    jobs = [(0, a_job(f"j{i}", labels=PICKY), ENDLESS) for i in range(2)]
    run = a_run(typed(FAST, gpus=2), jobs, "gavel:space_sharing=true")
    go(run, 1000)
    found = [record.attempt for record in run.state.jobs.values()]
    assert all(attempt is not None and attempt.placement.slots[0].portion is None for attempt in found)
