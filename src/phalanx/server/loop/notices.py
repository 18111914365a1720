"""Notices: what a running attempt is told when it next reports how far it is."""

from __future__ import annotations

from typing import TypedDict

import msgspec
from sqlalchemy import Connection

from phalanx.engine.action import Stop
from phalanx.engine.plan import Plan
from phalanx.engine.records import AttemptRecord
from phalanx.engine.state import State
from phalanx.server.store import settings

KEY = "notices"


class Notice(TypedDict):
    """Save your work until then; you will be stopped then. None: no need."""

    checkpoint_until_ms: int | None
    stop_at_ms: int | None


class Asked(msgspec.Struct, frozen=True):
    """A checkpoint somebody wants, and the step that was saved when the attempt heard of it."""

    until_ms: int
    had_step: int | None = None


class Kept(msgspec.Struct):
    """What attempts are to be told, by their keys."""

    checkpoints: dict[str, Asked] = {}
    stops: dict[str, int] = {}


def kept_of(content: bytes | None) -> Kept:
    """What was remembered before a restart."""
    return msgspec.json.decode(content, type=Kept) if content else Kept()


class Notices:
    """Remembers what attempts are to be told, also over a restart: no record tells of it, so it is kept beside."""

    def __init__(self, state: State, kept: Kept | None = None) -> None:
        self._state = state
        self._kept = kept or Kept()
        self._changed = False

    def ask_checkpoint(self, attempt: str, until_ms: int) -> None:
        """Has an attempt told to save its work."""
        self._keep(attempt, Asked(until_ms))

    def note(self, plan: Plan, now: int) -> None:
        """Takes note of stops: the grace is there to save what would be lost."""
        kept = self._kept
        for action in plan.actions:
            if isinstance(action, Stop):
                kept.stops[f"{action.id.job}/{action.id.attempt}"] = now + action.grace_ms
                self._changed = True
        if len(kept.stops) + len(kept.checkpoints) > 2 * max(len(self._state.leaving), 100):
            self._forget_the_gone()

    def write(self, connection: Connection) -> None:
        """Writes what has changed, in a transaction of the caller."""
        if self._changed:
            settings.put(connection, KEY, msgspec.json.encode(self._kept))
            self._changed = False

    def answer(self, attempt: AttemptRecord, durable_step: int) -> Notice:
        """What an attempt is told that has saved its work up to a step."""
        stop_at_ms = self._kept.stops.get(attempt.key)
        moments = (self._checkpoint(attempt.key, durable_step), stop_at_ms)
        until_ms = min((moment for moment in moments if moment is not None), default=None)
        return Notice(checkpoint_until_ms=until_ms, stop_at_ms=stop_at_ms)

    def _checkpoint(self, attempt: str, durable_step: int) -> int | None:
        """Until when an attempt is to save its work, if it has not since it first heard of it."""
        asked = self._kept.checkpoints.get(attempt)
        if asked is None:
            return None
        if asked.until_ms < self._state.now or (asked.had_step is not None and durable_step > asked.had_step):
            self._keep(attempt, None)
            return None
        if asked.had_step is None:
            self._keep(attempt, Asked(asked.until_ms, durable_step))
        return asked.until_ms

    def _keep(self, attempt: str, asked: Asked | None) -> None:
        self._changed = True
        if asked is None:
            del self._kept.checkpoints[attempt]
        else:
            self._kept.checkpoints[attempt] = asked

    def _forget_the_gone(self) -> None:
        present = {attempt.key for attempt in self._state.attempts_present()}
        self._kept.stops = {key: at for key, at in self._kept.stops.items() if key in present}
        self._kept.checkpoints = {key: at for key, at in self._kept.checkpoints.items() if key in present}
        self._changed = True
