"""Halving: which members of a sweep are stopped, by what they say of themselves on the way.

Asynchronous successive halving (Li et al., MLSys 2020): there are rungs at `first` steps, and then at every `factor`
times as many. At each rung a member that is not among the best 1/`factor` of those that have been there so far is
stopped, and what it held goes to the rest. No member waits for others to come to a rung: the first to come goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isfinite

WORST = inf


@dataclass(frozen=True, slots=True)
class Halving:
    """When members are compared, by which metric, and how few of them go on. `maximize`: more is better."""

    metric: str
    maximize: bool = False
    first: int = 1
    factor: int = 3

    def rungs(self, step: int) -> list[int]:
        """The rungs up to a step."""
        found = []
        rung = self.first
        while rung <= step:
            found.append(rung)
            rung *= self.factor
        return found


@dataclass(slots=True)
class Contest:
    """What the members of one sweep had reached at each rung: the less, the better."""

    halving: Halving
    reached: dict[int, dict[str, float]] = field(default_factory=dict)

    def report(self, member: str, step: int, value: float) -> int | None:
        """Takes note of what a member says at a step; the rung at which members have outdone it, None if none have.

        A member is compared once at each rung, by what it says first at that step or later. What is not a number is
        worse than all.
        """
        if not isfinite(value):
            value = WORST
        elif self.halving.maximize:
            value = -value
        for rung in self.halving.rungs(step):
            values = self.reached.setdefault(rung, {})
            if member not in values:
                values[member] = value
                if self._is_outdone(value, values):
                    return rung
        return None

    def _is_outdone(self, value: float, values: dict[str, float]) -> bool:
        go_on = max(len(values) // self.halving.factor, 1)
        return value == WORST or sum(other < value for other in values.values()) >= go_on
