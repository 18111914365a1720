"""The planner: the least number of nodes that meets targets, how sure that is, and the curve around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from phalanx.capacity.demand import fewest_nodes, most_nodes
from phalanx.capacity.point import Point, upper
from phalanx.capacity.runs import Runs
from phalanx.capacity.search import least_holding, least_near
from phalanx.capacity.target import NoSuchJobsError, Target
from phalanx.simulate.studies.batch import processors
from phalanx.simulate.studies.study import Case

AROUND = (0.8, 0.9, 1.1, 1.25)
"""Where else the curve is looked at, as parts of the answer."""

AS_GOOD = 1.02
"""What is within so much of the best that can be reached is as good."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What came out. `answer` is None where no number of nodes meets the targets; `best` is then the best there is.

    `present` is the cluster as it is, `check` the answer once more with other seeds, `never` are jobs that cannot start
    however many nodes there are, with their GPUs.
    """

    policy: str
    targets: tuple[Target, ...]
    answer: Point | None
    best: Point
    present: Point
    check: Point | None
    curve: tuple[Point, ...]
    never: Mapping[str, int]
    runs: int

    @property
    def is_reached(self) -> bool:
        """Whether some number of nodes meets every target."""
        return self.answer is not None


class Planner:
    """Looks for the least number of nodes, with few runs: first with one seed, then near that with all."""

    def __init__(self, runs: Runs, targets: Sequence[Target], seeds: int, between: tuple[int, int] | None) -> None:
        self.runs, self.targets = runs, tuple(targets)
        study = runs.study
        self.first = study.seed
        self.seeds = tuple(range(study.seed, study.seed + seeds))
        self.others = tuple(range(study.seed + seeds, study.seed + 2 * seeds))
        self.width = runs.workers or processors()
        self.floor, self.most = between or (fewest_nodes(study.cluster, study.like), enough(runs))
        self.now = len(study.cluster.nodes)

    def plan(self) -> Plan:
        """The answer, with what is around it."""
        self.runs.leave_out(self.most, self.first)
        (top,) = self.runs.points([self.most], self.seeds)
        self._refuse_no_jobs(top)
        present = self.runs.points([self.now], self.seeds)[0]
        near = self._least() if top.holds(self.targets) else None
        checked = self._checked(near) if near is not None else None
        if near is None or checked is None:
            best = self._best(top)
            return self._told(None, best, present, None)
        (answer,) = self.runs.points([checked], self.seeds)
        check = self.runs.points([checked], self.others)[0] if len(self.seeds) > 1 else None
        return self._told(answer, answer, present, check)

    def _refuse_no_jobs(self, top: Point) -> None:
        for index, target in enumerate(self.targets):
            if any(sample.values[index] is None for sample in top.samples):
                left = f"; {len(self.runs.never):,} that start with no number of nodes are left out" * bool(
                    self.runs.never
                )
                raise NoSuchJobsError(f"{target.figure}: no job of the runs is one of these{left}")

    def _told(self, answer: Point | None, best: Point, present: Point, check: Point | None) -> Plan:
        around, runs = self._curve(best.nodes), self.runs
        return Plan(runs.policy, self.targets, answer, best, present, check, around, runs.never, runs.count)

    def _least(self) -> int | None:
        """The least number that holds with all seeds, from the least that does with the first."""
        found = least_holding(self.floor, self.most, self._guess(), self._holds_once, self.width)
        if len(self.seeds) == 1:
            return found
        return least_near(self.floor, self.most, found, self._holds, self.width)

    def _guess(self) -> int:
        return min(max(self.now, self.floor), self.most)

    def _holds_once(self, nodes: Sequence[int]) -> list[bool]:
        return [point.holds(self.targets) for point in self.runs.points(nodes, [self.first])]

    def _holds(self, nodes: Sequence[int]) -> list[bool]:
        return [point.holds(self.targets) for point in self.runs.points(nodes, self.seeds)]

    def _checked(self, nodes: int) -> int | None:
        """That number, or the next above it that other seeds agree with: the search has chosen among chances."""
        if len(self.seeds) == 1:
            return nodes
        while nodes <= self.most:
            (own,) = self.runs.points([nodes], self.seeds)
            (check,) = self.runs.points([nodes], self.others)
            if own.holds(self.targets) and self._agrees(check):
                return nodes
            nodes += 1
        return None

    def _agrees(self, check: Point) -> bool:
        figures = [check.figure(index) for index in range(len(self.targets))]
        return all(
            found is not None and found.mean < target.below_s
            for found, target in zip(figures, self.targets, strict=True)
        )

    def _best(self, top: Point) -> Point:
        """The least number of nodes that is as good as the most."""
        reached = [upper(top.figure(index)) * AS_GOOD for index in range(len(self.targets))]

        def as_good(nodes: Sequence[int]) -> list[bool]:
            points = self.runs.points(nodes, self.seeds)
            return [all(upper(each.figure(i)) <= most for i, most in enumerate(reached)) for each in points]

        found = least_holding(self.floor, self.most, self._guess(), as_good, self.width)
        return self.runs.points([found], self.seeds)[0]

    def _curve(self, nodes: int) -> tuple[Point, ...]:
        """Points around a number of nodes, the cluster as it is, and the neighbours of the number."""
        around = (round(nodes * part) for part in AROUND)
        wanted = {nodes, nodes - 1, self.now, *around}
        return tuple(self.runs.points(sorted(each for each in wanted if self.floor <= each <= self.most), self.seeds))


def curve(runs: Runs, nodes: Sequence[int], seeds: int) -> list[Point]:
    """Points for numbers of nodes, or for the cluster as it is."""
    study = runs.study
    runs.leave_out(enough(runs), study.seed)
    return runs.points(nodes or [len(study.cluster.nodes)], range(study.seed, study.seed + seeds))


def enough(runs: Runs) -> int:
    """A number of nodes that is more than enough."""
    study = runs.study
    trace = study.setup(Case(runs.policy, runs.spec, study.seed, study.load)).trace
    return most_nodes(study.cluster, trace, study.like)
