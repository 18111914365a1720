"""Several tiers of checkpoints: each failure goes back to the newest save that survives it.

A save in the memory of the node survives a process that fails, one in the memory of other nodes survives the node, one
on shared storage survives all. Each tier has an interval of its own, by how often it alone is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import exp, expm1, floor
from random import Random

from phalanx.faults.reliability.ettr import SAFE_EXPONENT, Split
from phalanx.faults.reliability.intervals import exact_s
from phalanx.faults.reliability.monte_carlo import Booked

LEAST_INTERVAL_S = 10.0
"""No tier saves more often than about every step."""


@dataclass(frozen=True, slots=True)
class Tier:
    """Where checkpoints go: how long a save stops the work, how often it is made, how long it takes to load.

    No save can be made more often than `least_s`, as where one is written beside the work.
    """

    name: str
    save_s: float
    reload_s: float
    interval_s: float = 0.0
    least_s: float = LEAST_INTERVAL_S


@dataclass(frozen=True, slots=True)
class Way:
    """Failures that recover in one way: how often, from which tier, and how long each step takes.

    `keeps` means that work goes on from where it was: nothing is done again.
    """

    name: str
    per_hour: float
    tier: int
    detect_s: float
    queue_s: float
    restart_s: float
    keeps: bool = False

    @property
    def per_s(self) -> float:
        """Failures in a second."""
        return self.per_hour / 3600


def with_intervals(tiers: Sequence[Tier], ways: Sequence[Way]) -> tuple[Tier, ...]:
    """Each tier with the interval that is best for the failures that need it; one that none needs saves once a day.

    What goes to a deeper tier passes through those above it: where that is more often, they need no saves of their own.
    """
    chosen: list[Tier] = []
    for number, tier in reversed(list(enumerate(tiers))):
        per_s = sum(way.per_s for way in ways if way.tier == number and not way.keeps)
        interval_s = max(exact_s(tier.save_s, 1 / per_s), tier.least_s) if per_s else 86_400.0
        if chosen and chosen[0].interval_s <= interval_s:
            chosen.insert(0, replace(tier, interval_s=chosen[0].interval_s, save_s=0.0))
        else:
            chosen.insert(0, replace(tier, interval_s=interval_s))
    return tuple(chosen)


def tiered_split(tiers: Sequence[Tier], ways: Sequence[Way]) -> Split:
    """Where the time goes, in closed form. It is exact for one tier and one way, and near it for failures that are rare
    beside intervals: a failure is taken to find each tier at a moment of its own.
    """
    rate = sum(way.per_s for way in ways)
    slowdown = 1 + sum(tier.save_s / tier.interval_s for tier in tiers)
    if not rate:
        return Split(1 / slowdown, 1 - 1 / slowdown, 0.0, 0.0, 0.0, 0.0, 0.0)
    detect, queue, restart, reload, redo = (0.0,) * 5
    failing = sum(way.per_s * _starts(rate, way, tiers) for way in ways) / rate
    if failing > SAFE_EXPONENT * SAFE_EXPONENT:
        return Split(0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0)
    for way in ways:
        part, starts, reload_s = way.per_s / rate, _starts(rate, way, tiers), _reload_s(way, tiers)
        detect += part * starts * way.detect_s
        queue += part * starts * way.queue_s
        restart += part * starts * -expm1(-rate * way.restart_s) / rate
        reload += part * starts * exp(-rate * way.restart_s) * -expm1(-rate * reload_s) / rate
        redo += part * _redo_s(way, tiers, slowdown)
    whole = 1 / rate + detect + queue + restart + reload
    redo = min(redo, 1 / rate)
    kept = 1 / rate - redo
    parts = (kept / slowdown, kept * (1 - 1 / slowdown), redo, detect, queue, restart, reload)
    return Split(*(part / whole for part in parts))


def _starts(rate: float, way: Way, tiers: Sequence[Tier]) -> float:
    """How often a start is begun until one of them is not interrupted."""
    return exp(min(rate * (way.restart_s + _reload_s(way, tiers)), SAFE_EXPONENT))


def _reload_s(way: Way, tiers: Sequence[Tier]) -> float:
    return 0.0 if way.keeps else tiers[way.tier].reload_s


def _redo_s(way: Way, tiers: Sequence[Tier], slowdown: float) -> float:
    """Time since the tier's last save, as a failure finds it: 1/λ − S/(e^(λS) − 1), S/2 where failures are rare."""
    segment_s = tiers[way.tier].interval_s * slowdown
    if way.keeps or not way.per_s:
        return 0.0
    scaled = way.per_s * segment_s
    if scaled < 1e-6:
        return segment_s / 2
    return 1 / way.per_s - (segment_s / expm1(scaled) if scaled < SAFE_EXPONENT else 0.0)


Failure = tuple[float, Way]
"""At which second, and how it recovers."""


def by_chance(ways: Sequence[Way], until_s: float, seed: int) -> Iterable[Failure]:
    """Exponential failures of all ways, in the order of time."""
    chance, at_s = Random(seed), 0.0
    rates = [way.per_s for way in ways]
    whole = sum(rates)
    while whole and (at_s := at_s + chance.expovariate(whole)) < until_s:
        yield at_s, chance.choices(ways, rates)[0]


def replayed(tiers: Sequence[Tier], failures: Iterable[Failure], until_s: float) -> Booked:
    """Books a job through given failures, every second once. One more while it is down changes nothing."""
    booked, at_s, done_s = Booked(), 0.0, 0.0
    slowdown = 1 + sum(tier.save_s / tier.interval_s for tier in tiers)
    starts: list[tuple[str, float]] = []
    for fails_s, way in failures:
        if fails_s < at_s:
            continue
        at_s, done_s = _run(booked, starts, at_s, fails_s, done_s, slowdown)
        booked.failures += 1
        # Interrupted within a start: what it would have gone on from is there still.
        kept_s = done_s if way.keeps else _saved_s(tiers[way.tier], done_s)
        booked.redo += (done_s - kept_s) * slowdown
        done_s = kept_s
        booked.detect += min(way.detect_s, until_s - at_s)
        booked.queue += max(min(way.queue_s, until_s - at_s - way.detect_s), 0.0)
        at_s = min(at_s + way.detect_s + way.queue_s, until_s)
        starts = [("restart", way.restart_s), ("reload", _reload_s(way, tiers))]
    _, done_s = _run(booked, starts, at_s, until_s, done_s, slowdown)
    booked.work, booked.save = done_s, done_s * (slowdown - 1)
    return booked


def _run(
    booked: Booked, starts: Sequence[tuple[str, float]], at_s: float, until_s: float, done_s: float, slowdown: float
) -> tuple[float, float]:
    """Starts and works until a moment: that moment, and the work that is done by then."""
    for name, lasts_s in starts:
        spent_s = min(lasts_s, until_s - at_s)
        setattr(booked, name, getattr(booked, name) + spent_s)
        at_s += spent_s
    return until_s, done_s + (until_s - at_s) / slowdown


def _saved_s(tier: Tier, done_s: float) -> float:
    return floor(done_s / tier.interval_s) * tier.interval_s
