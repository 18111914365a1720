"""How many replicas a load asks for: worked by hand, a target of 10 for each replica unless it is said otherwise."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.engine.decide.scaling import GROW_AGAIN_MS, STALE_MS, Load, Standing, Verdict, next_size
from phalanx.workload.scale import Metric, Scale

LONG_AGO, NOW = 0, 10_000_000
SCALE = Scale(Metric.REQUESTS_PER_S, 10.0, 1, 8, 300_000)
BUSY = Scale(Metric.GPU_BUSY, 0.5, 1, 8, 300_000)
TO_ZERO = Scale(Metric.QUERY, 10.0, 0, 8, 300_000, "up")


def sized(
    value: float | None,
    size: int,
    scale: Scale = SCALE,
    *,
    running: int | None = None,
    since_ms: int = LONG_AGO,
    lately: int = 0,
) -> Verdict:
    load = Load(value, NOW, size if running is None else running, lately)
    return next_size(replace(scale, since_ms=since_ms), size, load, NOW)


@pytest.mark.parametrize(
    ("value", "size", "replicas", "standing"),
    [
        (35.0, 2, 4, Standing.GROWS),
        (20.0, 2, 2, Standing.STEADY),
        (21.9, 2, 2, Standing.STEADY),
        (22.1, 2, 3, Standing.GROWS),
        (15.0, 2, 2, Standing.STEADY),
        (9.0, 2, 1, Standing.SHRINKS),
        (0.0, 4, 1, Standing.SHRINKS),
        (900.0, 4, 8, Standing.GROWS),
        (900.0, 8, 8, Standing.AT_MAX),
        (1e300, 1, 8, Standing.GROWS),
    ],
)
def test_replicas_are_in_proportion_to_load(value: float, size: int, replicas: int, standing: Standing) -> None:
    told = sized(value, size)
    assert (told.replicas, told.standing) == (replicas, standing)


def test_busy_gpus_count_as_a_mean_over_those_that_run() -> None:
    # Two replicas at 90 % are 1.8 of work: four at 45 %.
    assert sized(0.9, 2, BUSY).replicas == 4
    # While two of four are still to come, that is what was asked for already.
    assert sized(0.9, 4, BUSY, running=2) == Verdict(4, 4, Standing.STEADY)
    assert sized(1.0, 8, BUSY).standing is Standing.AT_MAX


@pytest.mark.parametrize(
    ("value", "standing"),
    [
        (None, Standing.UNKNOWN),
        (nan, Standing.NONSENSE),
        (inf, Standing.NONSENSE),
        (-1.0, Standing.NONSENSE),
    ],
)
def test_a_load_that_is_not_known_or_no_number_leaves_the_size(value: float | None, standing: Standing) -> None:
    assert sized(value, 3) == Verdict(3, None, standing)


def test_a_measurement_that_is_too_old_leaves_the_size() -> None:
    assert next_size(SCALE, 3, Load(0.0, NOW - STALE_MS, 3), NOW).standing is Standing.SHRINKS
    assert next_size(SCALE, 3, Load(0.0, NOW - STALE_MS - 1, 3), NOW) == Verdict(3, None, Standing.STALE)


def test_it_shrinks_only_after_its_cool_down() -> None:
    assert sized(5.0, 3, since_ms=NOW - 299_999).standing is Standing.COOLS_DOWN
    assert sized(5.0, 3, since_ms=NOW - 300_000).replicas == 1


def test_one_that_was_just_started_again_cools_down_first() -> None:
    assert next_size(SCALE, 3, Load(5.0, NOW, 3), NOW, NOW - 299_999).standing is Standing.COOLS_DOWN
    assert next_size(SCALE, 3, Load(50.0, NOW, 3), NOW, NOW - 1).replicas == 5


def test_it_shrinks_no_further_than_the_most_that_was_wanted_lately() -> None:
    assert sized(5.0, 4, lately=3).replicas == 3
    assert sized(5.0, 4, lately=4) == Verdict(4, 1, Standing.COOLS_DOWN)


def test_it_grows_at_once_but_not_again_before_that_could_show() -> None:
    assert sized(50.0, 2, since_ms=NOW - GROW_AGAIN_MS).replicas == 5
    assert sized(50.0, 2, since_ms=NOW - GROW_AGAIN_MS + 1) == Verdict(2, 5, Standing.GROWS)


def test_only_without_any_load_it_has_no_replica() -> None:
    assert sized(0.0, 1, TO_ZERO).replicas == 0
    assert sized(0.001, 1, TO_ZERO).replicas == 1
    assert sized(0.0, 0, TO_ZERO) == Verdict(0, 0, Standing.STEADY)


def test_the_first_load_wakes_it_at_once() -> None:
    assert sized(25.0, 0, TO_ZERO, since_ms=NOW - 1).replicas == 3


@given(
    st.one_of(st.none(), st.floats()),
    st.integers(0, 8),
    st.integers(1, 8),
    st.integers(0, 9),
    st.integers(0, NOW),
    st.sampled_from([SCALE, BUSY, TO_ZERO]),
)
def test_no_load_leads_out_of_the_bounds(
    value: float | None, size: int, running: int, lately: int, since_ms: int, scale: Scale
) -> None:
    size = max(size, scale.least)
    told = next_size(replace(scale, since_ms=since_ms), size, Load(value, NOW, running, lately), NOW)
    assert scale.least <= told.replicas <= scale.most
    assert told.replicas == size or told.standing in (Standing.GROWS, Standing.SHRINKS)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=60))
def test_it_never_shrinks_twice_within_a_cool_down(values: list[float]) -> None:
    size, since_ms, shrunk_ms = 4, NOW, -300_000
    for step, value in enumerate(values):
        now = NOW + 30_000 * step
        told = next_size(replace(SCALE, since_ms=since_ms), size, Load(value, now, size), now)
        if told.replicas < size:
            assert now - shrunk_ms >= 300_000
            shrunk_ms = now
        if told.replicas != size:
            size, since_ms = told.replicas, now
