"""Theory: on one server the simulator gives what queueing theory says, and its policies are what they must be."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise, permutations
from statistics import fmean, stdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.cluster.cluster import flat
from phalanx.engine.state.records import JobRecord
from phalanx.policy.gittins import Gittins
from phalanx.simulate.simulation import Setup, Simulation
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.world.costs import NO_COSTS
from reference.queueing import mg1_fifo_response, mg1_srpt_response, mm1_fifo_response

BATCHES = range(20)
"""Runs of one seed each, so that their means are independent."""

COUNTED = 400
"""Jobs of a run that count."""

WARM_UP = 50
"""Jobs that are left out at the beginning of a run, when the server is still emptier than usual."""

STUDENT_99 = 2.861
"""So many standard errors to either side of a mean hold 99 % of Student's distribution with 19 degrees of freedom."""

MEAN_S = 10.0
ARRIVALS_PER_S = 0.05
"""A load of one half."""

Theory = Callable[[float], float]
"""The mean response in seconds, of so many arrivals a second."""


def on_one_server(jobs: list[TraceJob], policy: str) -> list[JobRecord]:
    simulation = Simulation(Setup(flat(1, 1), Trace("theory", tuple(jobs)), policy, "count", NO_COSTS))
    simulation.begin()
    simulation.go()
    return list(simulation.run.state.jobs.values())


def mean_response_s(jobs: list[TraceJob], policy: str) -> float:
    """Of those who came after the warm-up."""
    records = on_one_server(jobs, policy)[WARM_UP:]
    return sum((record.ended_ms or 0) - record.submitted_ms for record in records) / len(records) / 1000


def poisson(seed: int, size_s: Callable[[random.Random], float], count: int) -> list[TraceJob]:
    chance = random.Random(seed)
    at_s, jobs = 0.0, []
    for i in range(WARM_UP + count):
        at_s += chance.expovariate(ARRIVALS_PER_S)
        jobs.append(TraceJob(str(i), int(1000 * at_s), max(int(1000 * size_s(chance)), 1), 1))
    return jobs


def exponential(chance: random.Random) -> float:
    return chance.expovariate(1 / MEAN_S)


def always_the_same(chance: random.Random) -> float:
    return MEAN_S


def one_in_two_is_long(chance: random.Random) -> float:
    return 15.0 if chance.random() < 0.5 else 5.0


def chance_of_the_draw_s(jobs: list[TraceJob], theory: Theory) -> float:
    """How much more than usual the response should be for the sizes and gaps that were drawn, whose means are known.

    A control variate (Law, Simulation Modeling and Analysis, §11.4): its mean is nothing, and what is left without it
    varies much less. With sizes c times as large, W(λ) is c · W(c · λ), which gives both slopes.
    """
    slope_s = ARRIVALS_PER_S * (theory(1.01 * ARRIVALS_PER_S) - theory(0.99 * ARRIVALS_PER_S)) / (0.02 * ARRIVALS_PER_S)
    counted = jobs[WARM_UP:]
    size = sum(job.duration_ms for job in counted) / len(counted) / 1000 / MEAN_S
    gap = (jobs[-1].submit_ms - jobs[WARM_UP - 1].submit_ms) / len(counted) / 1000 * ARRIVALS_PER_S
    return (theory(ARRIVALS_PER_S) + slope_s) * (size - 1) - slope_s * (gap - 1)


def assert_as_in_theory(
    policy: str, size_s: Callable[[random.Random], float], theory: Theory, slower: float = 1.0
) -> None:
    """The theoretical mean lies in the 99 % interval over the batches, and the interval is narrow enough to tell."""
    means = []
    for seed in BATCHES:
        jobs = poisson(seed, size_s, COUNTED)
        served = [replace(job, duration_ms=round(slower * job.duration_ms)) for job in jobs]
        means.append(mean_response_s(served, policy) - chance_of_the_draw_s(jobs, theory))
    expected_s, margin_s = theory(ARRIVALS_PER_S), STUDENT_99 * stdev(means) / math.sqrt(len(means))
    assert margin_s < 0.07 * expected_s
    assert abs(fmean(means) - expected_s) < margin_s, (
        f"{fmean(means):.2f} s ± {margin_s:.2f} s, theory says {expected_s:.2f} s"
    )


def m_m_1(arrivals_per_s: float) -> float:
    return mm1_fifo_response(arrivals_per_s, 1 / MEAN_S)


def m_d_1(arrivals_per_s: float) -> float:
    return mg1_fifo_response(arrivals_per_s, MEAN_S, MEAN_S**2)


def m_g_1(arrivals_per_s: float) -> float:
    """One job in two is three times as long as the other: E[S²] = (5² + 15²) / 2."""
    return mg1_fifo_response(arrivals_per_s, MEAN_S, 125.0)


def srpt(arrivals_per_s: float) -> float:
    return mg1_srpt_response(arrivals_per_s, lambda size: math.exp(-size / MEAN_S) / MEAN_S, 40 * MEAN_S, 2_000)


QUEUES = [
    ("fifo", exponential, m_m_1),
    ("fifo", always_the_same, m_d_1),
    ("fifo", one_in_two_is_long, m_g_1),
    ("srtf", exponential, srpt),
]
NAMES = ["M/M/1", "M/D/1", "M/G/1", "SRPT"]


@pytest.mark.long
@pytest.mark.parametrize(("policy", "size_s", "theory"), QUEUES, ids=NAMES)
def test_the_mean_response_of_one_server_is_that_of_theory(
    policy: str, size_s: Callable[[random.Random], float], theory: Theory
) -> None:
    assert_as_in_theory(policy, size_s, theory)


@pytest.mark.parametrize(("policy", "size_s", "theory"), QUEUES[:3:2], ids=NAMES[:3:2])
def test_service_that_is_a_twentieth_off_is_told_from_theory(
    policy: str, size_s: Callable[[random.Random], float], theory: Theory
) -> None:
    with pytest.raises(AssertionError, match="theory says"):
        assert_as_in_theory(policy, size_s, theory, slower=1.05)


@pytest.mark.long
def test_with_exponential_sizes_an_order_that_knows_no_sizes_is_neither_better_nor_worse_than_fifo() -> None:
    assert_as_in_theory("tiresias-las:limits=5/20", exponential, m_m_1)


SMALL = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 6)), min_size=1, max_size=5)


@given(SMALL)
@settings(max_examples=60)
def test_srtf_on_one_server_is_as_good_as_the_best_of_all_schedules(rows: list[tuple[int, int]]) -> None:
    jobs = [TraceJob(str(i), 1000 * at, 1000 * size, 1) for i, (at, size) in enumerate(sorted(rows))]
    ours = sum((record.ended_ms or 0) - record.submitted_ms for record in on_one_server(jobs, "srtf"))
    assert ours == 1000 * least_total_response_s(sorted(rows))


def least_total_response_s(rows: list[tuple[int, int]]) -> int:
    """By trying, second after second, every job that is there: the number of jobs in the system, summed over time."""

    @cache
    def rest(now_s: int, left_s: tuple[int, ...]) -> int:
        here = [i for i, (at_s, _) in enumerate(rows) if at_s <= now_s and left_s[i]]
        coming = [at_s for at_s, _ in rows if at_s > now_s]
        if not here:
            return rest(min(coming), left_s) if coming else 0
        chosen = [(*left_s[:i], left_s[i] - 1, *left_s[i + 1 :]) for i in here]
        return len(here) + min(rest(now_s + 1, after) for after in chosen)

    return rest(0, tuple(size for _, size in rows))


@given(SMALL)
@settings(max_examples=60)
def test_no_order_of_jobs_on_one_server_is_better_than_srtf(rows: list[tuple[int, int]]) -> None:
    jobs = [TraceJob(str(i), 1000 * at, 1000 * size, 1) for i, (at, size) in enumerate(sorted(rows))]
    ours = sum((record.ended_ms or 0) - record.submitted_ms for record in on_one_server(jobs, "srtf"))
    for order in permutations(jobs):
        now = total = 0
        for job in order:
            now = max(now, job.submit_ms) + job.duration_ms
            total += now - job.submit_ms
        assert ours <= total


def test_with_falling_hazard_the_gittins_index_falls_with_service_so_that_the_least_served_goes_first() -> None:
    """Many short jobs and few long ones: the longer a job has run, the longer it will still run."""
    samples = tuple(sorted([1] * 900 + [2] * 450 + [4] * 220 + [8] * 110 + [16] * 55 + [32] * 27 + [64] * 14))
    index = Gittins(samples, 1_000)
    indexes = [index.of_theory(1000 * service) for service in (0, 1, 2, 4, 8, 16, 32)]
    assert indexes == sorted(indexes, reverse=True)


def test_with_equal_sizes_the_gittins_index_rises_with_service_so_that_who_began_ends() -> None:
    index = Gittins((100,) * 10, 1_000)
    indexes = [index.of_theory(1000 * service) for service in range(0, 100, 10)]
    assert indexes == sorted(indexes)
    assert indexes[0] < indexes[-1]


@pytest.mark.parametrize("seed", range(3))
def test_with_equal_sizes_gittins_is_fifo(seed: int) -> None:
    jobs = poisson(seed, always_the_same, 200)
    samples = "/".join(["10"] * 20)
    gittins = on_one_server(jobs, f"tiresias-gittins:samples={samples},quantum=100,limits=1000000")
    assert [record.ended_ms for record in gittins] == [record.ended_ms for record in on_one_server(jobs, "fifo")]
    assert not any(record.preemptions for record in gittins)


ONE_QUEUE = "limits=1000000"

FALLING = tuple(size for size in range(1, 61) for _ in range(round(600 / size**1.5)))
"""Sizes of which there are fewer and fewer, with a tail as heavy as a power law's."""

LONGEST_S = 12


def test_those_sizes_have_a_falling_index_at_every_second() -> None:
    index = Gittins(FALLING, 5)
    indexes = [index.of_theory(1000 * service_s) for service_s in range(LONGEST_S)]
    assert all(later < earlier for earlier, later in pairwise(indexes))


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, LONGEST_S)), min_size=1, max_size=12))
def test_with_falling_hazard_gittins_is_least_attained_service(rows: list[tuple[int, int]]) -> None:
    rows.sort()
    jobs = [TraceJob(str(i), 1000 * at, 1000 * size, 1) for i, (at, size) in enumerate(rows)]
    samples = "/".join(map(str, FALLING))
    gittins = on_one_server(jobs, f"tiresias-gittins:samples={samples},quantum=5,{ONE_QUEUE}")
    assert [(record.ended_ms or 0) // 1000 for record in gittins] == ends_by_least_service_s(rows)


def ends_by_least_service_s(rows: list[tuple[int, int]]) -> list[int]:
    """Whenever somebody comes or ends, who has had least goes on, the first submitted of equals."""
    had, ends = [0] * len(rows), [0] * len(rows)
    now = 0
    while not all(ends):
        here = [i for i, (at, _) in enumerate(rows) if at <= now and not ends[i]]
        coming = [at for at, _ in rows if at > now]
        if not here:
            now = min(coming)
            continue
        chosen = min(here, key=lambda i: (had[i], i))
        then = min([now + rows[chosen][1] - had[chosen], *coming])
        had[chosen] += then - now
        now = then
        if had[chosen] == rows[chosen][1]:
            ends[chosen] = now
    return ends


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), min_size=1, max_size=15))
def test_with_rising_hazard_gittins_is_fifo_and_stops_nobody(rows: list[tuple[int, int]]) -> None:
    """Sizes that are all alike up to 20 s: who has run for long is nearest to its end."""
    jobs = [TraceJob(str(i), 1000 * at, 1000 * size, 1) for i, (at, size) in enumerate(sorted(rows))]
    samples = "/".join(map(str, range(1, 21)))
    gittins = on_one_server(jobs, f"tiresias-gittins:samples={samples},quantum=20,{ONE_QUEUE}")
    assert [record.ended_ms for record in gittins] == [record.ended_ms for record in on_one_server(jobs, "fifo")]
    assert not any(record.preemptions for record in gittins)
