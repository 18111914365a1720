"""Experience: intervals of forecasts are corrected by how those before them came true."""

from __future__ import annotations

from dataclasses import replace
from math import exp
from random import Random

import pytest

from builders import World, a_job
from phalanx.bench.held_out import held_out
from phalanx.cluster.cluster import flat
from phalanx.simulate.estimates import estimates_of
from phalanx.simulate.experience import ENOUGH, Experience
from phalanx.simulate.forecast import Forecast, Outlook, Span
from phalanx.simulate.trace import Trace, TraceJob

HOUR_MS = 3_600_000


def made(early_h: float, late_h: float, next_end_ms: int = 0, job: str = "j") -> Forecast:
    """A forecast for one job, in hours from its beginning."""
    early_ms, late_ms = round(early_h * HOUR_MS), round(late_h * HOUR_MS)
    return Forecast(0, 100 * HOUR_MS, 9, {job: Span(early_ms, (early_ms + late_ms) // 2, late_ms)}, next_end_ms)


def experienced(starts: int, hours: float) -> Experience:
    """Of one for whom so many jobs, forecast for the second hour, started after some hours."""
    found, world = Experience(), World(flat(8, 8))
    names = [f"j{number}" for number in range(starts)]
    for name in names:
        found.remember(made(1, 2, job=name), "fifo")
    world.run(*(a_job(name, 1) for name in names), after_ms=round(hours * HOUR_MS))
    found.learn(world.state)
    assert not found.told
    return found


def test_who_started_later_than_told_widens_the_end_of_the_next_interval() -> None:
    span = experienced(ENOUGH, 4).corrected(made(1, 2), "fifo").spans["j"]
    assert span.late_ms == pytest.approx(4 * HOUR_MS, rel=0.02)
    assert span.middle_ms == 1.5 * HOUR_MS


def test_who_started_sooner_than_told_widens_its_beginning() -> None:
    span = experienced(ENOUGH, 0.5).corrected(made(1, 2), "fifo").spans["j"]
    assert span.early_ms == pytest.approx(0.5 * HOUR_MS, rel=0.02)


def test_no_beginning_is_moved_before_anybody_can_end() -> None:
    corrected = experienced(ENOUGH, 0.5).corrected(made(1, 2, next_end_ms=round(0.9 * HOUR_MS)), "fifo")
    assert corrected.spans["j"].early_ms == round(0.9 * HOUR_MS)


def test_too_few_starts_and_those_under_another_policy_correct_nothing() -> None:
    assert experienced(ENOUGH - 1, 4).corrected(made(1, 2), "fifo") == made(1, 2)
    assert experienced(ENOUGH, 4).corrected(made(1, 2), "fair") == made(1, 2)


def test_who_had_started_before_it_was_told_and_waits_again_tells_nothing() -> None:
    """A preempted job waits to start anew; its first start is not the one that was forecast."""
    found, world = Experience(), World(flat(8, 8))
    world.run(a_job("j", 1), after_ms=HOUR_MS)
    for _ in range(ENOUGH):
        found.remember(replace(made(3, 4), at_ms=2 * HOUR_MS), "fifo")
        found.learn(world.state)
    assert not found.misses


def test_a_start_beyond_the_time_looked_ahead_was_told_and_is_no_miss() -> None:
    found = Experience()
    for span in (Span(None, None, None), Span(HOUR_MS, None, None)):
        found.remember(replace(made(1, 2), spans={"j": span}), "fifo")
    assert not found.told


def test_what_nobody_can_tell_stays_so() -> None:
    unknown = Forecast(0, HOUR_MS, 9, {"j": Span(None, None, None, open=True)})
    assert experienced(ENOUGH, 4).corrected(unknown, "fifo") == unknown


def test_who_still_waits_past_the_end_of_its_interval_is_late_already() -> None:
    found = Experience()
    for number in range(ENOUGH):
        found.remember(made(1, 2, job=f"j{number}"), "fifo")
    later = Forecast(4 * HOUR_MS, HOUR_MS * 100, 9, {"j": Span(5 * HOUR_MS, 5 * HOUR_MS, 6 * HOUR_MS)})
    late_ms = found.corrected(later, "fifo").spans["j"].late_ms
    assert late_ms is not None
    assert late_ms > 7 * HOUR_MS


def one_after_another(seed: int) -> Trace:
    """Jobs that each take a whole node of lengths that differ much, and say a round length that is too long."""
    rng, at_ms, jobs = Random(seed), 0, []
    for number in range(200):
        at_ms += round(rng.expovariate(1 / HOUR_MS))
        jobs.append(TraceJob(str(number), at_ms, round(0.5 * HOUR_MS * exp(rng.gauss(0, 1))), 8))
    return estimates_of("round").of(Trace(f"seed {seed}", tuple(jobs)), seed)


def test_on_halves_of_traces_that_were_not_seen_eight_of_ten_intervals_hold() -> None:
    traces = [one_after_another(seed) for seed in range(4)]
    held = held_out(flat(1, 8), traces, "fifo", 5, Outlook(runs=9, horizon_ms=86_400_000))
    # The same at every run; the margin is for what others change. `phalanx bench tenants --only forecasts` measures.
    assert held.told.starts >= 12
    assert held.told.coverage is not None
    assert 0.68 <= held.told.coverage <= 0.95
