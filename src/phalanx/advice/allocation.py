"""The allocation: which share of their time jobs should have on each GPU type, by one of Gavel's objectives.

Each job has a measure that is linear in its shares, and a linear program finds the greatest least measure (Narayanan
et al., OSDI 2020, §4). A job that can have no more is kept at that, and the program is solved again for the rest, until
all are at their most (water filling, §4.3): so nothing that is of use to any job is left over. The measures are

    fairness     the throughput over what an equal share of the cluster would give, times GPUs, over weight
    makespan     the throughput over the work that is left: the last is done as early as can be
    finish_time  the throughput over the one with which ρ, time here over time on an equal part, is the same for all

`cost` (in `phalanx.advice.cheapest`) is no such measure: there the work that is done for a dollar is greatest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from phalanx.advice.solver import Deadline, model_of, solved, solver

DIGITS = 9
"""To so many digits shares are rounded: fewer than the solver gets right, more than a round can tell."""

PRICE_MIN = 1e-9
"""Prices below this, of 1 for all together, are nothing but rounding."""

SLACK = 1e-11
"""By this part of it a level may fall while other levels are raised, so that rounding makes nothing infeasible."""


LEFT_MIN_S = 1.0
"""A job that has done all it said has so much work left."""

SPAN_MIN_S = 1e-3
RHO_MAX = 1e6
RHO_STEPS = 24
"""Halves that are tried for ρ: it is found to one part in ten million."""

NEED_MIN = 1e-8
"""The least part of its time that any job is taken to need: the solver takes what is much smaller for nothing."""


@dataclass(frozen=True, slots=True, order=True)
class Demand:
    """What one job asks for: by type, the GPUs that it takes and its speed with them, both 0 where it cannot run.

    What else counts, for objectives that look at it, is in seconds at speed 1: the work that is left, the time since it
    was submitted, the time that it would take on an equal part of the cluster, and the speed that its deadline needs.
    """

    gpus: tuple[float, ...]
    speeds: tuple[float, ...]
    weight: float = 1.0
    left_s: float = 0.0
    elapsed_s: float = 0.0
    ideal_s: float = 0.0
    least_speed: float = 0.0

    @property
    def size(self) -> float:
        """GPUs that it counts as."""
        return max(self.gpus)


@dataclass(frozen=True, slots=True)
class Goal:
    """What an allocation is for. All of it has to be found in a time; prices are dollars for a GPU-hour, by type."""

    objective: str = "fairness"
    water_filling: bool = True
    timeout_s: float = 60.0
    prices: tuple[float, ...] = ()
    rows: tuple[int, ...] = ()

    def row(self, column: int) -> int:
        """The type of which a column of demands takes GPUs: itself, or that of which it is a half."""
        return self.rows[column] if self.rows else column


FAIR = Goal()

Group = tuple[Demand, int]
"""Jobs that ask for the same, and how many: they have the same share."""

Shares = tuple[float, ...]

Value = Callable[[Demand, int], float]
"""What a job gains of its measure by having a type all the time."""


@lru_cache(maxsize=1024)
def allocate(groups: tuple[Group, ...], capacity: tuple[float, ...], goal: Goal = FAIR) -> tuple[Shares, ...]:
    """The share of its time that each job of a group should have on each type, given so many GPUs of the types.

    Simplex returns a vertex: of several allocations that are equally fair it is one in which jobs change types as
    little as the constraints allow, and always the same one for the same groups in the same order.
    """
    if not groups:
        return ()
    deadline = Deadline(goal.timeout_s)
    program = LevelProgram(groups, capacity, _values(groups, capacity, goal, deadline), goal)
    while program.raise_levels(deadline) and goal.water_filling:
        pass
    return program.shares()


def _values(groups: tuple[Group, ...], capacity: tuple[float, ...], goal: Goal, deadline: Deadline) -> Value:
    match goal.objective:
        case "makespan":
            return lambda demand, k: demand.speeds[k] / max(demand.left_s, LEFT_MIN_S)
        case "finish_time":
            rho = _least_rho(groups, capacity, goal, deadline)
            return lambda demand, k: demand.speeds[k] / speed_for(demand, rho)
        case _:
            return lambda demand, k: value_of(demand, k, capacity)


def speed_for(demand: Demand, rho: float) -> float:
    """The speed at which a job is done after ρ times the time it would take on an equal part."""
    return max(demand.left_s, LEFT_MIN_S) / max(rho * demand.ideal_s - demand.elapsed_s, SPAN_MIN_S)


def _least_rho(groups: tuple[Group, ...], capacity: tuple[float, ...], goal: Goal, deadline: Deadline) -> float:
    """The least ρ that all jobs can have: more is always possible where less is, so halves are tried."""

    def possible(rho: float) -> bool:
        program = LevelProgram(groups, capacity, lambda demand, k: demand.speeds[k] / speed_for(demand, rho), goal)
        return program.level(deadline) >= 1 - SLACK

    # No job can be done before now, whatever it gets.
    least = max((demand.elapsed_s / demand.ideal_s for demand, _ in groups if demand.ideal_s), default=0.0)
    most = max(least, 1.0)
    while not possible(most) and most < RHO_MAX:
        most *= 2
    for _ in range(RHO_STEPS):
        middle = (least + most) / 2
        if possible(middle):
            most = middle
        else:
            least = middle
    return most


class LevelProgram:
    """Maximise t; for each group Σ_type value · X − t ≥ 0 and Σ_type X ≤ 1; for each type Σ jobs · gpus · X ≤ capacity.

    `value` is the measure of fairness at X = 1. A group that can have no more than t has, from then on, t as its bound.

    Values may be of any size, such as one over the seconds that are left, and the solver takes for nothing what is
    small beside 1. So the row of a group is divided by the greatest of its values, and t is counted in units of the
    least of these among the groups that still rise: with t = 1 at least one has all its time on its best type.
    """

    def __init__(self, groups: Sequence[Group], capacity: tuple[float, ...], value: Value, goal: Goal) -> None:
        self._highs: Any = solver()
        self._groups = groups
        self._capacity = capacity
        self._goal = goal
        self._pairs = [(g, k) for g, (demand, _) in enumerate(groups) for k, gpus in enumerate(demand.gpus) if gpus]
        self._gains = [value(groups[g][0], k) for g, k in self._pairs]
        self._most: dict[int, float] = {}
        for (g, _), gain in zip(self._pairs, self._gains, strict=True):
            self._most[g] = max(gain, self._most.get(g, 0.0))
        self._rising = {g: most for g, most in self._most.items() if most}
        self._unit = self._least()
        self._values: list[float] = [0.0] * len(self._pairs)
        self._model = model_of(self._highs, self._program())

    def _program(self) -> Any:
        highs, groups, types = self._highs, len(self._groups), len(self._capacity)
        program = highs.HighsLp()
        columns = len(self._pairs) + 1
        program.num_col_, program.num_row_ = columns, 2 * groups + types
        program.sense_ = highs.ObjSense.kMaximize
        program.col_cost_ = [0.0] * (columns - 1) + [1.0]
        program.col_lower_, program.col_upper_ = [0.0] * columns, [highs.kHighsInf] * columns
        program.row_lower_ = [0.0] * groups + [-highs.kHighsInf] * (groups + types)
        program.row_upper_ = [highs.kHighsInf] * groups + [1.0] * groups + list(self._capacity)
        starts, rows, values = [0], [], []
        for (g, k), gain in zip(self._pairs, self._gains, strict=True):
            demand, jobs = self._groups[g]
            rows += [g, groups + g, 2 * groups + self._goal.row(k)]
            values += [gain / (self._most[g] or 1.0), 1.0, jobs * demand.gpus[k]]
            starts.append(len(rows))
        rows += self._rising
        values += [-self._need(g) for g in self._rising]
        matrix = program.a_matrix_
        matrix.format_ = highs.MatrixFormat.kColwise
        matrix.start_, matrix.index_, matrix.value_ = [*starts, len(rows)], rows, values
        return program

    def raise_levels(self, deadline: Deadline) -> bool:
        """Raises all groups that can have more to one level; False if none can.

        Where a group's level has a price, no other group could do with less for it to have more: it is at its most.
        """
        if not self._rising:
            return False
        solution = solved(self._highs, self._model, deadline)
        *self._values, level = solution.col_value
        # Times what they need of a unit, the prices of all groups that rise add up to 1.
        prices = {g: abs(solution.row_dual[g]) * self._need(g) for g in self._rising}
        at_most = [g for g, price in prices.items() if price > PRICE_MIN] or list(self._rising)
        for g in at_most:
            self._model.changeRowBounds(g, level * self._need(g) * (1 - SLACK), self._highs.kHighsInf)
            self._model.changeCoeff(g, len(self._pairs), 0.0)
            del self._rising[g]
        self._measure_anew()
        return True

    def _measure_anew(self) -> None:
        """Takes another unit when the groups it was measured by are at their most."""
        least = self._least()
        if least == self._unit:
            return
        self._unit = least
        for g in self._rising:
            self._model.changeCoeff(g, len(self._pairs), -self._need(g))

    def _least(self) -> float:
        return min(self._rising.values(), default=1.0)

    def _need(self, g: int) -> float:
        """The part of its time, on its best type, that a group needs for each unit of t."""
        return max(self._unit / self._most[g], NEED_MIN)

    def level(self, deadline: Deadline) -> float:
        """The greatest least measure."""
        return float(solved(self._highs, self._model, deadline).col_value[-1]) * self._unit

    def shares(self) -> tuple[Shares, ...]:
        """The allocation as it is now, rounded."""
        found = [[0.0] * len(demand.gpus) for demand, _ in self._groups]
        for (g, k), value in zip(self._pairs, self._values, strict=True):
            found[g][k] = round(min(max(0.0, value), 1.0), DIGITS)
        return tuple(map(tuple, found))


def value_of(demand: Demand, gpu_type: int, capacity: tuple[float, ...]) -> float:
    """What a job gains by having a type all the time: its measure of fairness is the sum of these times its shares."""
    equal = sum(map(_product, demand.speeds, capacity)) / sum(capacity)
    return demand.speeds[gpu_type] / equal * demand.size / demand.weight


def _product(speed: float, capacity: float) -> float:
    return speed * capacity
