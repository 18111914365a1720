"""The solver of linear programs, and how long it may take for an answer."""

from __future__ import annotations

from time import monotonic
from types import ModuleType
from typing import Any

from phalanx.errors import PhalanxError

OPTIONS = (("output_flag", False), ("solver", "simplex"), ("threads", 1), ("presolve", "off"))
"""One thread and simplex: the same program has the same solution every time."""


class SolverMissingError(PhalanxError):
    """The solver is an extra that is not installed."""


class NotSolvedError(PhalanxError):
    """The solver gave up."""


class Deadline:
    """When an answer must be there: one for all the programs that it takes."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._end_s = monotonic() + timeout_s

    def left_s(self) -> float:
        """The time that is left. Once there is none, it raises."""
        left_s = self._end_s - monotonic()
        if left_s <= 0:
            raise NotSolvedError(f"policy gavel: its solver found no answer within {self._timeout_s:g} s")
        return left_s


def solver() -> ModuleType:
    """The solver, if it is installed."""
    try:
        import highspy
    except ImportError:
        raise SolverMissingError(
            "policy gavel needs the solver highspy, which is not installed: pip install highspy"
        ) from None
    return highspy


def model_of(highs: Any, program: Any) -> Any:
    """A model of a program, ready to be solved."""
    model = highs.Highs()
    for option, setting in OPTIONS:
        model.setOptionValue(option, setting)
    model.passModel(program)
    return model


def solved(highs: Any, model: Any, deadline: Deadline) -> Any:
    """The solution of a program; one that has none, or takes too long, raises."""
    if not is_feasible(highs, model, deadline):
        raise _not_solved(model)
    return model.getSolution()


def is_feasible(highs: Any, model: Any, deadline: Deadline) -> bool:
    """Solves a program: False if it has no solution. If that cannot be told, or not in time, it raises."""
    # The limit is on all runs of a model together.
    model.setOptionValue("time_limit", model.getRunTime() + deadline.left_s())
    model.run()
    match model.getModelStatus():
        case highs.HighsModelStatus.kOptimal:
            return True
        case highs.HighsModelStatus.kInfeasible:
            return False
    raise _not_solved(model)


def _not_solved(model: Any) -> NotSolvedError:
    status = model.modelStatusToString(model.getModelStatus())
    return NotSolvedError(f"policy gavel: a linear program of {model.getNumRow()} rows was not solved: {status}")
