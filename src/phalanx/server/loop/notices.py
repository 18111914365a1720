"""Notices: what a running attempt is told when it next reports how far it is."""

from __future__ import annotations

from typing import NamedTuple, TypedDict

from phalanx.engine.action import Stop
from phalanx.engine.plan import Plan
from phalanx.engine.records import AttemptRecord
from phalanx.engine.state import State


class Notice(TypedDict):
    """Save your work until then; you will be stopped then. None: no need."""

    checkpoint_until_ms: int | None
    stop_at_ms: int | None


class Asked(NamedTuple):
    """A checkpoint somebody wants, and the step that was saved when the attempt heard of it."""

    until_ms: int
    had_step: int | None = None


class Notices:
    """Remembers what attempts are to be told. A restart forgets: whoever still wants a checkpoint asks again."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._checkpoints: dict[str, Asked] = {}
        self._stops: dict[str, int] = {}

    def ask_checkpoint(self, attempt: str, until_ms: int) -> None:
        """Has an attempt told to save its work."""
        self._checkpoints[attempt] = Asked(until_ms)

    def note(self, plan: Plan, now: int) -> None:
        """Takes note of stops: the grace is there to save what would be lost."""
        for action in plan.actions:
            if isinstance(action, Stop):
                self._stops[f"{action.id.job}/{action.id.attempt}"] = now + action.grace_ms
        if len(self._stops) + len(self._checkpoints) > 2 * max(len(self._state.leaving), 100):
            self._forget_the_gone()

    def answer(self, attempt: AttemptRecord, durable_step: int) -> Notice:
        """What an attempt is told that has saved its work up to a step."""
        stop_at_ms = self._stops.get(attempt.key)
        moments = (self._checkpoint(attempt.key, durable_step), stop_at_ms)
        until_ms = min((moment for moment in moments if moment is not None), default=None)
        return Notice(checkpoint_until_ms=until_ms, stop_at_ms=stop_at_ms)

    def _checkpoint(self, attempt: str, durable_step: int) -> int | None:
        """Until when an attempt is to save its work, if it has not since it first heard of it."""
        asked = self._checkpoints.get(attempt)
        if asked is None:
            return None
        if asked.until_ms < self._state.now or (asked.had_step is not None and durable_step > asked.had_step):
            del self._checkpoints[attempt]
            return None
        if asked.had_step is None:
            self._checkpoints[attempt] = asked._replace(had_step=durable_step)
        return asked.until_ms

    def _forget_the_gone(self) -> None:
        present = {attempt.key for attempt in self._state.attempts_present()}
        self._stops = {key: at for key, at in self._stops.items() if key in present}
        self._checkpoints = {key: at for key, at in self._checkpoints.items() if key in present}
