"""Counsel: has the solver asked that a policy names, when the policy says that it is time."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.advice.registry import Adviser, adviser
from phalanx.engine.event import Advice
from phalanx.engine.state import State
from phalanx.errors import PhalanxError


class Counsel:
    """Knows the adviser of the present policy. What it says is an event like any other, and journaled as such."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._name = ""
        self._adviser: Adviser | None = None

    def due(self, state: State, now: int) -> list[Advice]:
        """What the adviser says now; nothing if nobody is to be asked yet."""
        if not state.policy.adviser:
            return []
        due_ms = state.policy.next_wakeup(state.memory, state.now)
        if due_ms is None or due_ms > now:
            return []
        try:
            return [self._of(state.policy.adviser)(state, now)]
        except (PhalanxError, ArithmeticError, ValueError) as error:
            # With nothing said things go on as they are, until it is time again.
            self._tell(f"no advice for policy {state.policy.spec}: {error}")
            return [Advice(state.policy.adviser, {})]

    def _of(self, name: str) -> Adviser:
        if self._adviser is None or name != self._name:
            self._name, self._adviser = name, adviser(name)
        return self._adviser
