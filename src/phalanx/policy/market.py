"""A market of GPU types: what a GPU of each is worth to jobs that cannot have it, given what all jobs make of it.

Groups of jobs are given types so that the sum of the logarithms of their speeds is the greatest. Each gets its
favourite first; then from every type that is asked for too much the group that loses least goes elsewhere, maybe so
that a third makes way (successive shortest paths; Ahuja, Magnanti and Orlin, Network Flows, 1993, chapter 9). The price
of a type is what one more GPU of it would gain all together. A job is best placed where its own logarithm less the
price is the greatest.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

WAITING = -12.0
"""What having nothing counts: less than the slowest GPU any job has."""

NEGLIGIBLE = 1e-9


class Group(NamedTuple):
    """Jobs that are alike: the logarithm of their speed on each type, −inf where they cannot run, and their GPUs."""

    values: tuple[float, ...]
    gpus: int


class Step(NamedTuple):
    """A group of which some go from one place to another."""

    group: int
    here: int
    there: int


def prices(groups: Sequence[Group], capacity: Sequence[int]) -> tuple[float, ...]:
    """The price of a GPU of each type; 0 where there are as many as are wanted."""
    market = _Market(groups, capacity)
    market.clear()
    return market.gains()[: len(capacity)]


class _Market:
    """How much of which place each group has. The last place is to wait: there is room for all."""

    def __init__(self, groups: Sequence[Group], capacity: Sequence[int]) -> None:
        self.values = [(*group.values, WAITING) for group in groups]
        self.left = [*capacity, sum(group.gpus for group in groups)]
        self.has = [[0] * len(self.left) for _ in groups]
        for at, (values, group) in enumerate(zip(self.values, groups, strict=True)):
            favourite = max(range(len(values)), key=lambda place: values[place])
            self.has[at][favourite] = group.gpus
            self.left[favourite] -= group.gpus

    def clear(self) -> None:
        """Has groups make way until no place holds more than it has room for."""
        for place in range(len(self.left)):
            while self.left[place] < 0:
                self._push(self._way_out(place))

    def gains(self) -> tuple[float, ...]:
        """What one more GPU at each place would gain: a group comes to it, maybe another to where that one was."""
        costs, _ = self._paths([0.0] * len(self.left))
        return tuple(max(0.0, -cost) for cost in costs)

    def _way_out(self, start: int) -> list[Step]:
        """Which groups go from where to where to free a GPU of a place at the least loss, the last first."""
        costs, steps = self._paths([0.0 if place == start else inf for place in range(len(self.left))])
        goal = min((place for place, left in enumerate(self.left) if left > 0), key=lambda place: costs[place])
        path: list[Step] = []
        while goal != start:
            step = steps[goal]
            assert step is not None, "there is always room to wait"
            path.append(step)
            goal = step.here
        return path

    def _paths(self, costs: list[float]) -> tuple[list[float], list[Step | None]]:
        """Least losses by which each place is reached from where it costs nothing, and the last step: Bellman-Ford."""
        edges = self._edges()
        steps: list[Step | None] = [None] * len(costs)
        for _ in range(len(costs) - 1):
            for step, loss in edges:
                if costs[step.here] + loss < costs[step.there] - NEGLIGIBLE:
                    costs[step.there], steps[step.there] = costs[step.here] + loss, step
        return costs, steps

    def _edges(self) -> list[tuple[Step, float]]:
        """For each two places the group that loses least by going from one to the other, and what it loses."""
        found: dict[tuple[int, int], tuple[Step, float]] = {}
        for group, (values, has) in enumerate(zip(self.values, self.has, strict=True)):
            for here, count in enumerate(has):
                if count:
                    for there, value in enumerate(values):
                        loss = values[here] - value
                        best = found.get((here, there))
                        if there != here and loss < inf and (best is None or loss < best[1]):
                            found[here, there] = (Step(group, here, there), loss)
        return list(found.values())

    def _push(self, path: Sequence[Step]) -> None:
        start, goal = path[-1].here, path[0].there
        count = min(-self.left[start], self.left[goal], *(self.has[step.group][step.here] for step in path))
        for step in path:
            self.has[step.group][step.here] -= count
            self.has[step.group][step.there] += count
        self.left[start] += count
        self.left[goal] -= count
