"""Least squares with no negative coefficients, for the few coefficients that models of training have.

The active-set method of Lawson and Hanson (Solving Least Squares Problems, 1974, chapter 23) on the normal equations:
coefficients start at 0, the one whose growth helps most is let free, and any that would turn negative goes back to 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from operator import mul

Row = Sequence[float]

NEGLIGIBLE = 1e-10
"""Gains and pivots below this part of the whole are nothing but rounding."""

EQUAL = 1e-9
"""Gains that differ by less than this part are equal."""


def non_negative(rows: Sequence[Row], values: Sequence[float]) -> tuple[float, ...]:
    """The coefficients, none below 0, for which rows times coefficients come closest to the values."""
    count = len(rows[0])
    columns = list(zip(*rows, strict=True))
    scales = [sqrt(_dot(column, column)) or 1.0 for column in columns]
    size = sqrt(_dot(values, values)) or 1.0
    gram = [[_dot(columns[i], columns[j]) / scales[i] / scales[j] for j in range(count)] for i in range(count)]
    right = [_dot(column, values) / scale for column, scale in zip(columns, scales, strict=True)]
    found = [0.0] * count
    free: list[int] = []
    left_out: list[int] = []
    while len(free) + len(left_out) < count:
        gains = [right[i] - sum(gram[i][j] * found[j] for j in free) for i in range(count)]
        others = [i for i in range(count) if i not in free and i not in left_out]
        most = max(gains[i] for i in others)
        if most <= NEGLIGIBLE * size:
            break
        # Of those that help alike but for rounding, the first.
        best = next(i for i in others if gains[i] >= most * (1 - EQUAL))
        free = sorted((*free, best))
        if not _settle(gram, right, found, free):
            # It says nothing that the free ones do not say, or went straight back to 0.
            left_out.append(best)
            if best in free:
                free.remove(best)
    return tuple(found[i] / scales[i] for i in range(count))


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    total: float = sum(map(mul, one, other))
    return total


def _settle(gram: list[list[float]], right: list[float], found: list[float], free: list[int]) -> bool:
    """Solves for the free coefficients, giving up those that would be negative; False if that leads nowhere."""
    newest = [i for i in free if not found[i]]
    while True:
        solved = _solve([[gram[i][j] for j in free] for i in free], [right[i] for i in free])
        if solved is None:
            return False
        bound = [found[i] / (found[i] - new) for i, new in zip(free, solved, strict=True) if new <= 0]
        step = min(bound, default=1.0)
        for i, new in zip(free, solved, strict=True):
            found[i] += step * (new - found[i])
        if not bound:
            return True
        for i in [i for i in free if found[i] <= NEGLIGIBLE]:
            found[i] = 0.0
            free.remove(i)
        if not free or any(i not in free for i in newest):
            return False


def _solve(matrix: list[list[float]], right: list[float]) -> list[float] | None:
    """Gaussian elimination with the largest pivots; None if the matrix is singular."""
    size = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i in range(size):
        pivot = max(range(i, size), key=lambda k: abs(rows[k][i]))
        if abs(rows[pivot][i]) < NEGLIGIBLE:
            return None
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for k in range(i + 1, size):
            factor = rows[k][i] / rows[i][i]
            for j in range(i, size + 1):
                rows[k][j] -= factor * rows[i][j]
    solution = [0.0] * size
    for i in range(size - 1, -1, -1):
        known = sum(rows[i][j] * solution[j] for j in range(i + 1, size))
        solution[i] = (rows[i][size] - known) / rows[i][i]
    return solution
