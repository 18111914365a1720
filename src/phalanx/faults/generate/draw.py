"""Drawing occurrences: the same plan, site, time and seed always give the same ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gamma
from random import Random

from phalanx.cluster.cluster import Cluster
from phalanx.faults.generate.occurrence import Occurrence, What
from phalanx.faults.generate.plan import DAY_MS, Plan
from phalanx.faults.taxonomy.cause import Cause, Domain, Recovery
from phalanx.faults.taxonomy.choose import ProfileError
from phalanx.faults.taxonomy.fleet import Fleet

HOUR_MS = 3_600_000
OCCURRENCES_MAX = 2_000_000

WHAT = {
    Recovery.PROCESS: What.PROCESS,
    Recovery.NODE: What.NODE,
    Recovery.STORAGE: What.NODE,
    Recovery.REROUTE: What.PROCESS,
}
"""What a failure does by the way its job recovers. Until a path is found around a link, the processes wait or end."""


@dataclass(frozen=True, slots=True)
class Site:
    """The nodes of a cluster, and the domains that fail as one."""

    nodes: tuple[str, ...]
    gpus: Mapping[str, int]
    nics: Mapping[str, int]
    spot: tuple[str, ...]
    domain: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, cluster: Cluster, level: str = "") -> Site:
        """A cluster with its domains at a level, by default the innermost above nodes."""
        above = cluster.levels_above
        if level and level not in above:
            raise ProfileError(
                f"the cluster has no level {level!r} above its nodes (it has: {', '.join(above) or 'none'})"
            )
        depth = above.index(level) + 1 if level else len(above)
        members: dict[tuple[str, ...], list[str]] = {}
        for node in cluster.nodes:
            members.setdefault(node.path[:depth], []).append(node.name)
        whole = {path: tuple(names) for path, names in members.items()}
        return cls(
            tuple(node.name for node in cluster.nodes),
            {node.name: node.gpus for node in cluster.nodes},
            {node.name: node.nics or node.gpus for node in cluster.nodes},
            tuple(node.name for node in cluster.nodes if node.spot),
            {node.name: whole[node.path[:depth]] if depth else (node.name,) for node in cluster.nodes},
        )

    def per_hour(self, cause: Cause, node: str) -> float:
        """Failures of one node by one cause in an hour."""
        gpus = self.gpus[node]
        return cause.rate.of(Fleet(gpus, gpus, self.nics[node])) if gpus else 0.0


def lemons_of(plan: Plan, site: Site, seed: int) -> tuple[str, ...]:
    """The nodes that fail more often than others."""
    if plan.lemons > len(site.nodes):
        raise ProfileError(f"{plan.lemons} lemons among {len(site.nodes)} nodes: expected at most as many")
    return tuple(sorted(_chance(seed, "lemons").sample(site.nodes, plan.lemons)))


def draw(plan: Plan, site: Site, until_ms: int, seed: int) -> tuple[Occurrence, ...]:
    """Everything that goes wrong before a moment, in the order of time."""
    _check(plan, site, until_ms)
    return tuple(sorted(_all(plan, site, until_ms, seed), key=lambda each: (each.at_ms, each.nodes, each.what)))


def _check(plan: Plan, site: Site, until_ms: int) -> None:
    """Refuses what would fill the memory, before it does."""
    per_hour = sum(site.per_hour(cause, node) for cause in plan.profile.causes for node in site.nodes)
    days = (plan.silent_days, plan.slow_days, plan.maintenance_days, plan.partition_days)
    per_hour += sum(len(site.nodes) / each / 24 for each in days if each)
    per_hour += len(site.spot) / plan.reclaim_hours if plan.reclaim_hours else 0.0
    expected = per_hour * until_ms / HOUR_MS
    if expected > OCCURRENCES_MAX:
        told = f"about {expected:,.0f} failures, and at most {OCCURRENCES_MAX:,} can be made"
        raise ProfileError(f"{told}: expected a lower rate, or fewer days=")


def _all(plan: Plan, site: Site, until_ms: int, seed: int) -> Iterator[Occurrence]:
    lemons = set(lemons_of(plan, site, seed))
    for node in site.nodes:
        yield from _failures(plan, site, node, plan.lemon_factor if node in lemons else 1.0, until_ms, seed)
    for node in site.nodes:
        yield from _others(plan, site, node, until_ms, seed)
    for node in site.spot:
        mean_ms = plan.reclaim_hours * HOUR_MS
        for at_ms in moments(mean_ms, 1.0, until_ms, _chance(seed, f"reclaim {node}")):
            yield Occurrence(at_ms, What.RECLAIM, (node,), "spot reclaim", 0, plan.reclaim_ms, plan.notice_ms)


def _failures(plan: Plan, site: Site, node: str, factor: float, until_ms: int, seed: int) -> Iterator[Occurrence]:
    """Failures of a node: when, by all its causes together, and then which of them it was."""
    rates = [site.per_hour(cause, node) for cause in plan.profile.causes]
    whole = sum(rates)
    if not whole:
        return
    chance = _chance(seed, f"node {node}")
    for at_ms in moments(HOUR_MS / whole / factor, plan.shape, until_ms, chance):
        (cause,) = chance.choices(plan.profile.causes, rates)
        if chance.random() < plan.burst:
            nodes, what = site.domain[node], What.NODE
        else:
            nodes, what = (node,), WHAT[cause.recovery]
        repair_ms = 0 if what is What.PROCESS else _repair_ms(plan, cause)
        yield Occurrence(at_ms, what, nodes, cause.name, plan.detect_ms, repair_ms)


def _repair_ms(plan: Plan, cause: Cause) -> int:
    """A program that failed is no repair of a node."""
    return 0 if cause.domain is Domain.USER else plan.repair_ms


def _others(plan: Plan, site: Site, node: str, until_ms: int, seed: int) -> Iterator[Occurrence]:
    """What no profile tells of: each at its own rate, with its own chances, so that asking for one moves no other."""
    shapes: Sequence[tuple[What, float, int, int, int, float]] = (
        (What.SILENT, plan.silent_days, plan.silent_detect_ms, plan.repair_ms, 0, 1.0),
        (What.SLOW, plan.slow_days, 0, plan.slow_ms, 0, plan.slow_factor),
        (What.MAINTENANCE, plan.maintenance_days, 0, plan.maintenance_ms, plan.notice_ms, 1.0),
        (What.PARTITION, plan.partition_days, plan.detect_ms, plan.partition_ms, 0, 1.0),
    )
    for what, days, detect_ms, repair_ms, notice_ms, factor in shapes:
        for at_ms in moments(days * DAY_MS, 1.0, until_ms, _chance(seed, f"{what} {node}")):
            nodes = site.domain[node] if what is What.PARTITION else (node,)
            yield Occurrence(at_ms, what, nodes, what.value, detect_ms, repair_ms, notice_ms, factor)


def moments(mean_ms: float, shape: float, until_ms: int, chance: Random) -> Iterator[int]:
    """Moments with Weibull times of that mean between them; none where the mean is 0."""
    if not mean_ms:
        return
    scale = mean_ms / gamma(1 + 1 / shape)
    at_ms = chance.weibullvariate(scale, shape)
    while at_ms < until_ms:
        yield int(at_ms)
        at_ms += max(chance.weibullvariate(scale, shape), 1.0)


def _chance(seed: int, what: str) -> Random:
    """Chance of its own for each thing: text seeds are hashed the same everywhere."""
    return Random(f"{seed} {what}")
