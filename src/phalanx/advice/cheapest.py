"""The cheapest allocation: the most work for a dollar, with deadlines met (Narayanan et al., OSDI 2020, §4.2).

Work for a dollar is a fraction of two sums that are linear in the shares. It is made a linear program as Charnes and
Cooper do (1962): shares are counted as parts of a dollar spent. Of all allocations with the greatest fraction one is
taken that does the most work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.advice.allocation import DIGITS, SLACK, Goal, Group, Shares
from phalanx.advice.solver import Deadline, is_feasible, model_of, solved, solver

SHARE_MIN = 1e-6
"""Less is what rounding leaves, and must not make any job a claimant of a type."""

LOOSENINGS_MAX = 64
"""Deadlines that cannot all be met are given up, the hardest first, but no more of them one by one than so many."""


def cheapest(groups: tuple[Group, ...], capacity: tuple[float, ...], goal: Goal) -> tuple[Shares, ...]:
    """The shares of each job of a group."""
    if not groups:
        return ()
    deadline = Deadline(goal.timeout_s)
    program = _Program(groups, capacity, goal, _feasible(groups, capacity, goal, deadline))
    rate = program.work_per_dollar(deadline)
    return program.most_work(rate * (1 - 10 * SLACK), deadline)


def _feasible(groups: tuple[Group, ...], capacity: tuple[float, ...], goal: Goal, deadline: Deadline) -> list[float]:
    """The speed that each job needs for its deadline; 0 for those whose deadlines have to be given up."""
    needs = [min(demand.least_speed, max(demand.speeds)) for demand, _ in groups]
    hardest_first = sorted(
        (i for i, need in enumerate(needs) if need), key=lambda i: -needs[i] / max(groups[i][0].speeds)
    )
    for given_up, i in enumerate([None, *hardest_first]):
        if i is not None:
            needs[i] = 0.0
        if given_up > LOOSENINGS_MAX:
            return [0.0] * len(groups)
        if _Program(groups, capacity, goal, needs).is_feasible(deadline):
            return needs
    return needs


class _Program:
    """Variables: X by group and type, then z, by which all is scaled. Rows: Σ X ≤ z; Σ jobs·gpus·X ≤ capacity·z;
    Σ speed·X ≥ need·z; and one of its own for what is asked.
    """

    def __init__(
        self, groups: Sequence[Group], capacity: tuple[float, ...], goal: Goal, needs: Sequence[float]
    ) -> None:
        self._highs: Any = solver()
        self._groups, self._capacity, self._goal, self._needs = groups, capacity, goal, needs
        self._pairs = [(g, k) for g, (demand, _) in enumerate(groups) for k, gpus in enumerate(demand.gpus) if gpus]
        self._work = [groups[g][1] * groups[g][0].speeds[k] for g, k in self._pairs]
        self._dollars = [groups[g][1] * groups[g][0].gpus[k] * goal.prices[k] for g, k in self._pairs]

    def is_feasible(self, deadline: Deadline) -> bool:
        """Whether the needs can all be met."""
        model = self._model([0.0] * len(self._pairs), scale=(1.0, 1.0), own=None)
        return is_feasible(self._highs, model, deadline)

    def work_per_dollar(self, deadline: Deadline) -> float:
        """The most work for a dollar."""
        model = self._model(self._work, scale=(0.0, self._highs.kHighsInf), own=(self._dollars, 1.0, 1.0))
        values = solved(self._highs, model, deadline).col_value
        return float(sum(work * value for work, value in zip(self._work, values[:-1], strict=True)))

    def most_work(self, rate: float, deadline: Deadline) -> tuple[Shares, ...]:
        """The shares with the most work of all that do at least so much for a dollar."""
        gains = [work - rate * dollars for work, dollars in zip(self._work, self._dollars, strict=True)]
        model = self._model(self._work, scale=(1.0, 1.0), own=(gains, 0.0, self._highs.kHighsInf))
        values = solved(self._highs, model, deadline).col_value
        found = [[0.0] * len(demand.gpus) for demand, _ in self._groups]
        for (g, k), value in zip(self._pairs, values, strict=False):
            found[g][k] = round(min(value, 1.0), DIGITS) if value > SHARE_MIN else 0.0
        return tuple(map(tuple, found))

    def _model(
        self, gains: Sequence[float], scale: tuple[float, float], own: tuple[Sequence[float], float, float] | None
    ) -> Any:
        highs, groups, types = self._highs, len(self._groups), len(self._capacity)
        infinite = highs.kHighsInf
        program = highs.HighsLp()
        columns, rows = len(self._pairs) + 1, 2 * groups + types + 1
        program.num_col_, program.num_row_ = columns, rows
        program.sense_ = highs.ObjSense.kMaximize
        program.col_cost_ = [*gains, 0.0]
        program.col_lower_ = [0.0] * (columns - 1) + [scale[0]]
        program.col_upper_ = [infinite] * (columns - 1) + [scale[1]]
        _, own_least, own_most = own if own is not None else ((), -infinite, infinite)
        program.row_lower_ = [-infinite] * (groups + types) + [0.0] * groups + [own_least]
        program.row_upper_ = [0.0] * (groups + types) + [infinite] * groups + [own_most]
        starts, index, values = [0], [], []
        for i, (g, k) in enumerate(self._pairs):
            demand, jobs = self._groups[g]
            entries = [
                (g, 1.0),
                (groups + self._goal.row(k), jobs * demand.gpus[k]),
                (groups + types + g, demand.speeds[k]),
            ]
            if own is not None:
                entries.append((rows - 1, own[0][i]))
            index += [row for row, _ in entries]
            values += [value for _, value in entries]
            starts.append(len(index))
        index += range(rows - 1)
        values += [-1.0] * groups + [-amount for amount in self._capacity] + [-need for need in self._needs]
        matrix = program.a_matrix_
        matrix.format_ = highs.MatrixFormat.kColwise
        matrix.start_, matrix.index_, matrix.value_ = [*starts, len(index)], index, values
        return model_of(highs, program)
