"""The allocation: which share of their time jobs should have on each GPU type, by max-min fairness.

The measure is that of Gavel (Narayanan et al., OSDI 2020, §4.1): the throughput of a job over what an equal share of
the whole cluster would give it, times its GPUs, over its weight. A linear program finds the greatest least measure.
Who can have no more is kept at that, and the program is solved again for the rest, until all are at their most (water
filling, §4.3): so nothing that is of use to anybody is left over.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

from phalanx.errors import PhalanxError

DIGITS = 9
"""To so many digits shares are rounded: fewer than the solver gets right, more than a round can tell."""

DUAL_MIN = 1e-9
"""Prices below this are nothing but rounding."""

SLACK = 1e-11
"""By this part of it a level may fall while others are raised, so that rounding makes nothing infeasible."""


class SolverMissingError(PhalanxError):
    """The solver is an extra that is not installed."""


class NotSolvedError(PhalanxError):
    """The solver gave up."""


@dataclass(frozen=True, slots=True, order=True)
class Demand:
    """What one job asks for: by type, the GPUs that it takes and its speed with them, both 0 where it cannot run."""

    gpus: tuple[float, ...]
    speeds: tuple[float, ...]
    weight: float = 1.0

    @property
    def size(self) -> float:
        """GPUs that it counts as."""
        return max(self.gpus)


Group = tuple[Demand, int]
"""Jobs that ask for the same, and how many: they have the same share."""

Shares = tuple[float, ...]


def solver() -> ModuleType:
    """The solver, if it is installed."""
    try:
        import highspy
    except ImportError:
        raise SolverMissingError(
            "policy gavel needs the solver highspy, which is not installed: pip install 'phalanx[solve]'"
        ) from None
    return highspy


@lru_cache(maxsize=1024)
def allocate(groups: tuple[Group, ...], capacity: tuple[float, ...]) -> tuple[Shares, ...]:
    """The share of its time that each job of a group should have on each type, given so many GPUs of the types.

    Simplex returns a vertex: of several allocations that are equally fair it is one in which jobs change types as
    little as the constraints allow, and always the same one for the same groups in the same order.
    """
    if not groups:
        return ()
    program = _Program(groups, capacity)
    while program.raise_levels():
        pass
    return program.shares()


class _Program:
    """Maximise t; for each group Σ_type value · X − t ≥ 0 and Σ_type X ≤ 1; for each type Σ jobs · gpus · X ≤ capacity.

    `value` is the measure of fairness at X = 1. A group that can have no more than t has, from then on, t as its bound.
    """

    def __init__(self, groups: tuple[Group, ...], capacity: tuple[float, ...]) -> None:
        self._highs: Any = solver()
        self._groups = groups
        self._capacity = capacity
        self._pairs = [(g, k) for g, (demand, _) in enumerate(groups) for k, gpus in enumerate(demand.gpus) if gpus]
        self._rising = dict.fromkeys(g for g, _ in self._pairs)
        self._values: list[float] = [0.0] * len(self._pairs)
        self._model = self._highs.Highs()
        for option, value in (("output_flag", False), ("solver", "simplex"), ("threads", 1), ("presolve", "off")):
            self._model.setOptionValue(option, value)
        self._model.passModel(self._program())

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
        for g, k in self._pairs:
            demand, jobs = self._groups[g]
            rows += [g, groups + g, 2 * groups + k]
            values += [value_of(demand, k, self._capacity), 1.0, jobs * demand.gpus[k]]
            starts.append(len(rows))
        rows += self._rising
        values += [-1.0] * len(self._rising)
        matrix = program.a_matrix_
        matrix.format_ = highs.MatrixFormat.kColwise
        matrix.start_, matrix.index_, matrix.value_ = [*starts, len(rows)], rows, values
        return program

    def raise_levels(self) -> bool:
        """Raises all who can have more to one level; False if nobody can.

        Where a group's level has a price, no other group could do with less for it to have more: it is at its most.
        """
        if not self._rising:
            return False
        self._model.run()
        if self._model.getModelStatus() != self._highs.HighsModelStatus.kOptimal:
            status = self._model.modelStatusToString(self._model.getModelStatus())
            raise NotSolvedError(
                f"policy gavel: the linear program of {len(self._groups)} groups was not solved: {status}"
            )
        solution = self._model.getSolution()
        *self._values, level = solution.col_value
        prices = solution.row_dual
        at_most = [g for g in self._rising if abs(prices[g]) > DUAL_MIN] or list(self._rising)
        for g in at_most:
            del self._rising[g]
            self._model.changeRowBounds(g, level * (1 - SLACK), self._highs.kHighsInf)
            self._model.changeCoeff(g, len(self._pairs), 0.0)
        return True

    def shares(self) -> tuple[Shares, ...]:
        """The allocation as it is now, rounded."""
        found = [[0.0] * len(self._capacity) for _ in self._groups]
        for (g, k), value in zip(self._pairs, self._values, strict=True):
            found[g][k] = round(min(max(0.0, value), 1.0), DIGITS)
        return tuple(map(tuple, found))


def value_of(demand: Demand, gpu_type: int, capacity: tuple[float, ...]) -> float:
    """What a job gains by having a type all the time: its measure of fairness is the sum of these times its shares."""
    equal = sum(map(_product, demand.speeds, capacity)) / sum(capacity)
    return demand.speeds[gpu_type] / equal * demand.size / demand.weight


def _product(speed: float, capacity: float) -> float:
    return speed * capacity
