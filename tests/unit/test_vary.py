"""Variations: values from a span, intervals from seeds, curves from runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.simulate.figures.confidence import interval, t_quantile
from phalanx.simulate.studies.table import MEASURES
from phalanx.simulate.studies.vary import Variation, VariationError, curves
from results import a_result, an_empty_result


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("load=0.5:1.2:0.1", (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2)),
        ("load=0.5:1.2:0.2", (0.5, 0.7, 0.9, 1.1)),
        ("load=1:1:1", (1.0,)),
        ("load=0.1:0.3:0.1", (0.1, 0.2, 0.3)),
        ("load=.5 : 1 : .25", (0.5, 0.75, 1.0)),
        ("load=1:2:5", (1.0,)),
    ],
)
def test_a_span_holds_its_stop_where_the_steps_reach_it(text: str, values: tuple[float, ...]) -> None:
    assert Variation.parse(text) == Variation("load", values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("load", "expected KEY=START:STOP:STEP, such as load=0.5:1.2:0.1"),
        ("load=", "expected KEY=START:STOP:STEP"),
        ("load=0.5:1.2", "expected KEY=START:STOP:STEP"),
        ("load=1:2:3:4", "expected KEY=START:STOP:STEP"),
        ("gpus=1:2:1", "expected one of load, nodes before '='"),
        ("nodes=1:2:0.5", "expected whole numbers of nodes"),
        ("nodes=0:2", "start 0: expected more than 0"),
        ("load=a:1:1", "start 'a': expected a number"),
        ("load=1:nan:1", "stop 'nan': expected a number"),
        ("load=1:2:", "step '': expected a number"),
        ("load=1:2:0", "step 0: expected more than 0"),
        ("load=-1:2:1", "start -1: expected more than 0"),
        ("load=2:1:0.1", "expected a start of at most 1, found 2"),
        ("load=1:2:0.0001", "expected at most 1000 values; take a larger step"),
        ("load=1:2:1e-300", "expected at most 1000 values"),
        ("load=1:9e999:1", "expected at most 1000 values"),
    ],
)
def test_a_span_that_cannot_be_read_says_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(VariationError) as error:
        Variation.parse(text)
    assert message in str(error.value)
    assert str(error.value).startswith(f"--vary {text}: ")
    assert error.value.exit_code == 2


# Two-sided 95 % points, as any table of Student's distribution has them.
@pytest.mark.parametrize(
    ("freedom", "t"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (9, 2.262), (10, 2.228), (29, 2.045), (120, 1.980)],
)
def test_the_quantile_is_that_of_the_tables(freedom: int, t: float) -> None:
    assert t_quantile(freedom) == pytest.approx(t, abs=5e-4)


def test_the_quantile_falls_towards_that_of_the_normal_distribution() -> None:
    quantiles = [t_quantile(freedom) for freedom in range(1, 60)]
    assert quantiles == sorted(quantiles, reverse=True)
    assert t_quantile(5000) == pytest.approx(1.960, abs=1e-3)


def test_there_is_no_quantile_without_freedom() -> None:
    with pytest.raises(ValueError, match="at least 1 degree of freedom, found 0"):
        t_quantile(0)


def test_an_interval_by_hand() -> None:
    # s = 2, so the margin is 4.303 · 2 ÷ √3.
    found = interval([8.0, 10.0, 12.0])
    assert found.mean == 10.0
    assert found.low == pytest.approx(10 - 4.968, abs=1e-3)
    assert found.high == pytest.approx(10 + 4.968, abs=1e-3)
    assert found.count == 3


def test_one_value_has_no_bounds_and_none_has_no_interval() -> None:
    assert (interval([4.0]).mean, interval([4.0]).low, interval([4.0]).high) == (4.0, None, None)
    with pytest.raises(ValueError, match="at least one value"):
        interval([])


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20))
def test_an_interval_holds_its_mean(values: list[float]) -> None:
    found = interval(values)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.mean <= found.high


def test_there_is_a_curve_for_each_policy_and_measure_with_a_point_for_each_value() -> None:
    runs = [
        (load, a_result(policy, jobs=20, seed=seed, load=load).summary)
        for policy in ("fifo", "priority")
        for load in (1.0, 0.5)
        for seed in (1, 2, 3)
    ]
    found = curves("load", runs)
    assert len(found) == 2 * sum(not measure.optional for measure in MEASURES)
    first = found[0]
    assert (first.key, first.policy, first.measure.key) == ("load", "fifo", "completed")
    assert [at for at, _ in first.points] == [0.5, 1.0]
    assert all(point.count == 3 for _, point in first.points)


def test_runs_without_a_figure_have_no_point() -> None:
    found = curves("load", [(0.5, an_empty_result().summary), (1.0, a_result().summary)])
    jct = next(curve for curve in found if curve.measure.key == "mean_jct")
    assert [at for at, _ in jct.points] == [1.0]


def test_a_curve_is_plain_data_for_programs() -> None:
    curve = curves("load", [(0.5, a_result(seed=seed).summary) for seed in (1, 2)])[1]
    data = curve.data()
    assert (data["key"], data["policy"], data["metric"]) == ("load", "fifo", "jct_s.mean")
    (point,) = data["points"]
    assert list(point) == ["at", "mean", "low", "high", "seeds"]
    assert point["low"] < point["mean"] < point["high"]
    assert curves("load", [(0.5, a_result().summary)])[1].data()["points"][0]["low"] is None
