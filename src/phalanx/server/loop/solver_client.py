"""Solver client: has the solver asked that a policy names, when the policy says that it is time."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.advice.registry import KEPT, Adviser, adviser
from phalanx.engine.state.state import State
from phalanx.protocol.event import Advice


class SolverClient:
    """Knows the adviser of the present policy. What it says is an event like any other, and journaled as such.

    `tell` gets a line, and `count` is called, whenever nothing is advised and so the last advice goes on to hold.
    """

    def __init__(self, tell: Callable[[str], None], count: Callable[[], None]) -> None:
        self._tell = tell
        self._count = count
        self._name = ""
        self._adviser: Adviser | None = None

    def due(self, state: State, now: int) -> list[Advice]:
        """What the adviser says now; nothing if it is not to be asked yet."""
        if not state.policy.adviser:
            return []
        due_ms = state.policy.next_wakeup(state.memory, state.now)
        if due_ms is None or due_ms > now:
            return []
        advice = self._ask(state, now)
        if KEPT in advice.body:
            self._count()
        return [advice]

    def _ask(self, state: State, now: int) -> Advice:
        name, spec = state.policy.adviser, state.policy.spec
        try:
            advice = self._of(name)(state, now)
        except Exception as error:  # An adviser with a defect is no reason to stop serving.
            self._tell(f"policy {spec}: no advice, the last is kept: {type(error).__name__}: {error}")
            return Advice(name, {KEPT: 1.0})
        if KEPT in advice.body:
            self._tell(f"policy {spec}: its solver found no answer, or not in time: the last advice is kept")
        return advice

    def _of(self, name: str) -> Adviser:
        if self._adviser is None or name != self._name:
            self._name, self._adviser = name, adviser(name)
        return self._adviser
