"""How often to save to each tier: from how often things fail, and from what saving costs as measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, inf, sqrt

DAY_S = 86_400.0
SMOOTHING = 0.3
"""The weight of a new measurement beside all earlier ones."""


def young_s(cost_s: float, mtbf_s: float) -> float:
    """Young's interval (1974): √(2δM)."""
    return sqrt(2 * cost_s * mtbf_s)


def daly_s(cost_s: float, mtbf_s: float) -> float:
    """Daly's interval of higher order (2006): √(2δM)·(1 + ⅓√(δ/2M) + (1/9)(δ/2M)) − δ for δ < 2M, else M."""
    if cost_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = cost_s / (2 * mtbf_s)
    return young_s(cost_s, mtbf_s) * (1 + sqrt(ratio) / 3 + ratio / 9) - cost_s


@dataclass(frozen=True, slots=True)
class Rates:
    """How often a job fails, and how deep.

    The defaults are published ones: 6.5 failures in 1000 node-days (Kokolis et al., HPCA 2025); three of four are
    mended by a new process on the same node (DLRover). Of those that take a node, `power_share` take it for a
    while only, so that its disks come back; `beyond_peers` is the chance that the copies in memory do not suffice.
    """

    nodes: int = 1
    failures_per_node_day: float = 6.5e-3
    process_share: float = 0.75
    power_share: float = 0.2
    beyond_peers: float = 1.0

    def per_second(self, tier: str) -> float:
        """The rate of failures that need this tier or a deeper one; a tier is saved to as often as these demand."""
        every = self.nodes * self.failures_per_node_day / DAY_S
        node_lost = every * (1 - self.process_share)
        shares = {
            "device": every,
            "host": every,
            "peer": node_lost,
            "local": node_lost * self.beyond_peers,
            "shared": node_lost * self.beyond_peers * (1 - self.power_share),
        }
        return shares[tier]


@dataclass(slots=True)
class Cost:
    """What saving to a tier costs: the time that training stands still, and how long the tier is busy with it."""

    blocked_s: float = 0.0
    busy_s: float = 0.0
    known: bool = False

    def learn(self, blocked_s: float, busy_s: float) -> None:
        """Takes one measurement in; costs drift, so that new ones count for more than old ones."""
        weight = SMOOTHING if self.known else 1.0
        self.blocked_s += weight * (blocked_s - self.blocked_s)
        self.busy_s += weight * (busy_s - self.busy_s)
        self.known = True


@dataclass(slots=True)
class Schedule:
    """For each tier the number of steps from one save to the next, fixed by the user or else worked out."""

    every: Mapping[str, int | None]
    rates: Rates
    first_after: int = 1
    """The first save of a tier whose costs are not known yet."""
    intervals: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)

    def due(self, step: int) -> list[str]:
        """The tiers that are to be saved to after this step."""
        return [tier for tier in self.every if self._is_due(tier, step)]

    def saved(self, step: int, tiers: list[str]) -> None:
        for tier in tiers:
            self.last[tier] = step

    def restart(self, step: int) -> None:
        """Goes on from a step that was brought back, as if all tiers had been saved to then."""
        self.last = dict.fromkeys(self.every, step)

    def adapt(self, costs: Mapping[str, Cost], step_s: float) -> None:
        """Works the intervals out anew.

        A tier is not saved to faster than it can take the data (`busy_s`), whatever the failures would ask for, and a
        deeper tier not more often than the one that it is fed from, in multiples of which it counts.
        """
        above = 1
        for tier, fixed in self.every.items():
            cost = costs.get(tier, Cost())
            if fixed is not None:
                self.intervals[tier] = fixed
            elif cost.known and step_s > 0:
                steps = self.wanted_s(tier, cost) / step_s
                self.intervals[tier] = max(1, above * ceil(steps / above)) if steps < inf else 2**31
            if tier == "host":
                above = self.interval(tier)

    def wanted_s(self, tier: str, cost: Cost) -> float:
        """The interval that failures ask for, or the one that the tier sustains if that is longer."""
        rate = self.rates.per_second(tier)
        optimum_s = daly_s(cost.blocked_s, 1 / rate) if rate > 0 else inf
        return max(optimum_s, cost.busy_s)

    def _is_due(self, tier: str, step: int) -> bool:
        """An interval that is worked out counts from the last save, a fixed one falls on its multiples.

        Milestones of a retention are multiples too, and must not be missed because a run was resumed in between.
        """
        last, fixed = self.last.get(tier, 0), self.every[tier]
        if fixed is None:
            return step - last >= self.interval(tier)
        return step // fixed > last // fixed

    def interval(self, tier: str) -> int:
        """Steps from one save to the next."""
        fixed = self.every[tier]
        return fixed if fixed is not None else self.intervals.get(tier, self.first_after)
