"""Least squares without negative coefficients, and the loss curves that are fitted by it."""

from __future__ import annotations

from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.policy.least_squares import non_negative
from phalanx.policy.loss_curve import SAMPLES_MAX, fit, thinned

NUMBERS = st.sampled_from([-7.0, -1.0, -0.25, 0.0, 0.5, 1.0, 3.0, 100.0])


@given(
    st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(NUMBERS, min_size=n, max_size=n), min_size=1, max_size=9)),
    st.data(),
)
def test_no_coefficient_is_negative_and_none_could_be_changed_for_the_better(
    rows: list[list[float]], data: st.DataObject
) -> None:
    values = data.draw(st.lists(NUMBERS, min_size=len(rows), max_size=len(rows)))
    found = non_negative(rows, values)
    rest = [
        value - sum(a * x for a, x in zip(row, found, strict=True)) for row, value in zip(rows, values, strict=True)
    ]
    for i, x in enumerate(found):
        # The conditions of Karush, Kuhn and Tucker: no gain in growing, and none in shrinking what is not 0.
        gain = sum(row[i] * left for row, left in zip(rows, rest, strict=True))
        size = sqrt(sum(row[i] * row[i] for row in rows)) or 1.0
        assert x >= 0
        assert gain / size < 1e-6
        assert not x or abs(gain) / size < 1e-6


def test_what_fits_exactly_is_found() -> None:
    assert non_negative([(1, 0), (1, 1), (1, 2)], [3, 5, 7]) == pytest.approx((3, 2))


def test_a_coefficient_that_would_be_negative_is_0() -> None:
    assert non_negative([(1, 0), (1, 1), (1, 2)], [4, 2, 0]) == pytest.approx((2, 0))


def test_columns_that_say_the_same_do_no_harm() -> None:
    found = non_negative([(1, 1), (2, 2)], [3, 6])
    assert sum(found) == pytest.approx(3)


def test_a_curve_is_found_from_its_first_tenth() -> None:
    curve = fit([(k, 1 / (0.01 * k + 0.5) + 0.2) for k in range(0, 100, 5)])
    assert curve is not None
    # u · (u + 0.1) = 0.1 / drop at u = 10.5, which is step 1000.
    assert curve.converges_at(10, 0.1 / (10.5 * 10.6)) == pytest.approx(1000, rel=0.02)


@pytest.mark.parametrize("losses", [[2.0] * 9, [1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 1.0], [3.0, 2.0, 1.0, 0.0, -1.0], []])
def test_a_loss_that_does_not_fall_or_is_hardly_known_has_no_curve(losses: list[float]) -> None:
    assert fit(list(enumerate(losses))) is None


def test_a_rule_that_is_never_met_has_no_step() -> None:
    curve = fit([(k, 1 / (0.01 * k + 0.5)) for k in range(0, 100, 5)])
    assert curve is not None
    assert curve.converges_at(10, 0.0) is None


def test_too_many_samples_are_thinned_and_reach_back_to_the_beginning() -> None:
    samples = [(float(k), 1.0) for k in range(SAMPLES_MAX + 1)]
    assert thinned(samples)[0] == samples[0]
    assert len(thinned(samples)) <= SAMPLES_MAX
