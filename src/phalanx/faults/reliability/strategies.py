"""Four ways to live with failures, from restarting only to going on without the node, with the times each is built on.

Their times are round numbers of what the sources of the field report, and can all be changed: a design is only as good
as they are for the site it is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from phalanx.faults.reliability.tiers import Tier, Way, with_intervals
from phalanx.faults.taxonomy.cause import Recovery


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of each step. A `requeue_s` is what a job waits for another node, a `warm_s` what one kept ready takes.

    `process_s` starts the processes again where they were, `restart_s` the whole job on other nodes, `reconfigure_s`
    has the others go on without a node. `reroute_s` is how long a network takes to find another path.
    """

    detect_s: float = 60.0
    requeue_s: float = 180.0
    process_s: float = 60.0
    restart_s: float = 300.0
    warm_s: float = 90.0
    reconfigure_s: float = 30.0
    reroute_s: float = 30.0
    memory_save_s: float = 1.0
    memory_reload_s: float = 10.0
    peer_save_s: float = 1.0
    peer_reload_s: float = 30.0
    storage_save_s: float = 30.0
    storage_reload_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way: its tiers, how each kind of failure recovers, and the part of its speed that is left meanwhile."""

    name: str
    about: str
    tiers: tuple[Tier, ...]
    ways: tuple[Way, ...]
    speed: float = 1.0


RESTART, TIERS, SPARES, TEMPLATES = "restart", "tiers", "spares", "templates"
NAMES = (RESTART, TIERS, SPARES, TEMPLATES)

Rates = Mapping[Recovery, float]
"""Failures of the job in an hour by what they need."""


def strategies(rates: Rates, times: Times, missing: float = 0.0, from_memory: float = 1.0) -> tuple[Strategy, ...]:
    """All four, each with the best intervals.

    `missing` is the part of its nodes that a job which goes on without them lacks on average; `from_memory` the chance
    that a node which is lost leaves a copy in the memory of others.
    """
    return (
        restart_only(rates, times),
        _tiered(
            TIERS, "saves in memory, in that of other nodes, and on storage", rates, times, times.requeue_s, from_memory
        ),
        with_spares(rates, times, from_memory),
        templates(rates, times, missing, from_memory),
    )


def restart_only(rates: Rates, times: Times) -> Strategy:
    """Every failure starts the job again on other nodes, from storage."""
    way = Way("any failure", sum(rates.values()), 0, times.detect_s, times.requeue_s, times.restart_s)
    tiers = with_intervals((_storage(times),), (way,))
    return Strategy(RESTART, "every failure restarts the job from storage", tiers, (way,))


def _storage(times: Times) -> Tier:
    return Tier("parallel file system", times.storage_save_s, times.storage_reload_s)


def _tiers(times: Times) -> tuple[Tier, ...]:
    return (
        Tier("memory of the node", times.memory_save_s, times.memory_reload_s),
        Tier("memory of other nodes", times.peer_save_s, times.peer_reload_s),
        # What is in memory already is written from there, beside the work, with half of the storage's rate to spare.
        replace(_storage(times), save_s=times.memory_save_s, least_s=2 * times.storage_save_s),
    )


def _tiered(
    name: str, about: str, rates: Rates, times: Times, queue_s: float, from_memory: float, reroutes: bool = False
) -> Strategy:
    node, detect_s = rates[Recovery.NODE], times.detect_s
    links = Way("link", rates[Recovery.REROUTE], 0, detect_s, 0.0, times.process_s)
    if reroutes:
        links = Way("link", rates[Recovery.REROUTE], 0, times.reroute_s, 0.0, 0.0, keeps=True)
    ways = (
        links,
        Way("process", rates[Recovery.PROCESS], 0, detect_s, 0.0, times.process_s),
        Way("node", node * from_memory, 1, detect_s, queue_s, times.restart_s),
        Way("all copies", node * (1 - from_memory), 2, detect_s, queue_s, times.restart_s),
        Way("bad state", rates[Recovery.STORAGE], 2, detect_s, queue_s, times.restart_s),
    )
    return Strategy(name, about, with_intervals(_tiers(times), ways), ways)


def templates(rates: Rates, times: Times, missing: float, from_memory: float) -> Strategy:
    """Pipeline templates (Oobleck, SOSP 2023), by formula: a lost node costs a reconfiguration and no work.

    Other replicas hold what it held. Until it is repaired the job has that part of its speed less.
    """
    spares = with_spares(rates, times, from_memory)
    ways = tuple(
        replace(way, queue_s=0.0, restart_s=times.reconfigure_s, keeps=True) if way.name == "node" else way
        for way in spares.ways
    )
    about = "pipelines go on without a lost node, at the speed of those that are left (by formula)"
    return Strategy(TEMPLATES, about, with_intervals(_tiers(times), ways), ways, 1 - missing)


def with_spares(rates: Rates, times: Times, from_memory: float) -> Strategy:
    """Tiers and warm spares, which templates build on for all but lost nodes."""
    about = "the same, with spare nodes kept warm, and links rerouted under running jobs"
    warm = replace(times, restart_s=times.warm_s)
    return _tiered(SPARES, about, rates, warm, 0.0, from_memory, reroutes=True)
