"""Intervals between saves: published formulas to the digit, and the exact one against brute force."""

from __future__ import annotations

import pytest

from phalanx.faults.reliability.course import Course, CourseError
from phalanx.faults.reliability.ettr import exact_ettr, exact_split, published_ettr
from phalanx.faults.reliability.intervals import (
    availability_optimal_s,
    best_of,
    daly_first_s,
    daly_s,
    exact_s,
    young_s,
)
from phalanx.faults.reliability.monte_carlo import run_to, simulated, weibull
from phalanx.faults.reliability.published import compared
from phalanx.faults.reliability.tornado import tornado

M = 1.8 * 3600


@pytest.mark.parametrize(("save_s", "young", "first", "higher"), [(60, 881.8, 821.8, 842.3), (10, 360.0, 350.0, 353.4)])
def test_young_and_daly_by_hand(save_s: float, young: float, first: float, higher: float) -> None:
    assert young_s(save_s, M) == pytest.approx(young, abs=0.05)
    assert daly_first_s(save_s, M) == pytest.approx(first, abs=0.05)
    assert daly_s(save_s, M) == pytest.approx(higher, abs=0.05)


def test_a_save_of_twice_the_time_between_failures_is_made_once_in_that_time() -> None:
    assert daly_s(200, 100) == 100
    assert daly_first_s(200, 100) == 100


def test_the_availability_optimal_period_is_that_of_its_paper() -> None:
    # T_s = 60, T_f = 3600, T_r = 300: 60 + √(2·3900·60 + 3600).
    assert availability_optimal_s(60, 3600, 300) + 60 == pytest.approx(60 + 471_600**0.5)


@pytest.mark.parametrize("per_hour", [0.01, 0.1, 1, 10])
@pytest.mark.parametrize("save_s", [0.1, 1, 30, 300])
def test_the_chosen_interval_is_that_of_brute_force(per_hour: float, save_s: float) -> None:
    course = Course(per_hour, 60, save_s, 30, 30, 120, 60)
    searched = best_of(lambda interval_s: exact_ettr(course.every(interval_s)), 0.01, 1e7)
    chosen = exact_s(save_s, course.mttf_s)
    assert chosen == pytest.approx(searched, rel=0.001)
    if save_s < course.mttf_s / 2:
        assert daly_s(save_s, course.mttf_s) == pytest.approx(searched, rel=0.05)


@pytest.mark.parametrize("per_hour", [0.02, 0.2, 0.5, 2])
@pytest.mark.parametrize("interval_s", [60, 300, 900, 3600])
def test_closed_form_and_chance_are_within_two_percent(per_hour: float, interval_s: float) -> None:
    course = Course(per_hour, interval_s, 10, 30, 60, 200, 100)
    booked = simulated(course, failures=15_000, seed=7)
    exact = exact_split(course)
    assert booked.split.work == pytest.approx(exact.work, rel=0.02)
    for name, share in exact.parts.items():
        assert booked.split.parts[name] == pytest.approx(share, abs=0.01), name


def test_every_second_is_booked_once() -> None:
    course = Course(0.5, 600, 10, 30, 60, 200, 100)
    assert sum(exact_split(course).parts.values()) == pytest.approx(1, abs=1e-12)
    assert sum(run_to(course, 1e6, 3).split.parts.values()) == pytest.approx(1, abs=1e-12)


def test_without_failures_only_saves_cost() -> None:
    course = Course(0, 95, 5)
    assert exact_ettr(course) == pytest.approx(0.95)
    assert published_ettr(course) == pytest.approx(0.95)
    assert run_to(course, 950, 0).split.work == pytest.approx(950 / (950 + 50 + 300))


def test_where_failures_follow_faster_than_recoveries_nothing_gets_done() -> None:
    course = Course(3600, 3600, restart_s=3600)
    assert exact_ettr(course) == published_ettr(course) == 0
    assert sum(exact_split(course).parts.values()) == 1


def test_failures_that_come_early_find_less_work_to_lose() -> None:
    course = Course(0.5, 600, 10, restart_s=300)
    early = simulated(course, 15_000, 1, weibull(course, 0.6))
    assert early.split.redo < simulated(course, 15_000, 1).split.redo * 0.9


def test_what_meta_printed_comes_out_of_its_formula() -> None:
    found = {each.what: each for each in compared(failures=4_000)}
    assert found["MTTF of 16,384 GPUs"].model == pytest.approx(1.8, abs=0.05)
    assert found["MTTF of 131,072 GPUs"].model == pytest.approx(0.23, abs=0.005)
    assert found["MTTF of 1,024 GPUs"].off > 2, "the small size is where model and measurement differ"
    assert found["ETTR of 16k GPUs, a save every 60 min: formula"].model == pytest.approx(0.70, abs=0.02)
    assert found["ETTR of 16k GPUs, a save every 5 min: formula"].model == pytest.approx(0.93, abs=0.005)


def test_the_tornado_has_the_longest_bar_first_and_none_for_what_is_nothing() -> None:
    bars = tornado(Course(0.5, 600, 10, detect_s=0, restart_s=600, reload_s=5))
    assert [bar.swing for bar in bars] == sorted((bar.swing for bar in bars), reverse=True)
    assert "detection" not in {bar.figure for bar in bars}
    assert bars[0].figure == "failure rate"


@pytest.mark.parametrize("broken", [{"interval_s": 0.0}, {"restart_s": -1.0}, {"per_hour": float("nan")}])
def test_times_that_no_job_can_have_are_refused(broken: dict[str, float]) -> None:
    with pytest.raises(CourseError, match=next(iter(broken))):
        Course(**{"per_hour": 1.0, "interval_s": 60.0, **broken})
