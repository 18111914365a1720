"""Notices: what a running attempt is told when it next reports how far it is."""

from __future__ import annotations

from typing import TypedDict

import msgspec
from sqlalchemy import Connection

from phalanx.engine.state.records import AttemptRecord
from phalanx.engine.state.state import State
from phalanx.protocol.action import Stop
from phalanx.protocol.plan import Plan
from phalanx.server.store import settings

KEY = "notices"


class Notice(TypedDict):
    """Save your work until then; you will be stopped then. None: no need."""

    checkpoint_until_ms: int | None
    stop_at_ms: int | None


class Asked(msgspec.Struct, frozen=True):
    """A save that was asked for. `from_step` is the step that the attempt had come to by its first report afterwards,
    `durable_step` the first at or after it that was reported to be durable.
    """

    until_ms: int
    asked_ms: int = 0
    from_step: int | None = None
    durable_step: int | None = None


class Kept(msgspec.Struct):
    """What attempts are to be told, by their keys."""

    checkpoints: dict[str, Asked] = {}
    stops: dict[str, int] = {}


def kept_of(content: bytes | None) -> Kept:
    """What was remembered before a restart."""
    return msgspec.json.decode(content, type=Kept) if content else Kept()


def asked_of(connection: Connection, attempt: str) -> Asked | None:
    """The save that an attempt was last asked for."""
    return kept_of(settings.get(connection, KEY)).checkpoints.get(attempt)


def notice_of(connection: Connection, attempt: str, now: int) -> Notice:
    """What an attempt is told that has nothing to report yet."""
    return notice_in(kept_of(settings.get(connection, KEY)), attempt, now)


def notice_in(kept: Kept, attempt: str, now: int) -> Notice:
    """What an attempt is to be told. The time until it is stopped is there to save what would be lost."""
    asked, stop_at_ms = kept.checkpoints.get(attempt), kept.stops.get(attempt)
    is_open = asked is not None and asked.durable_step is None and asked.until_ms >= now
    moments = (asked.until_ms if asked is not None and is_open else None, stop_at_ms)
    until_ms = min((moment for moment in moments if moment is not None), default=None)
    return Notice(checkpoint_until_ms=until_ms, stop_at_ms=stop_at_ms)


class Notices:
    """Remembers what attempts are to be told, also over a restart: no record tells of it, so it is kept beside."""

    def __init__(self, state: State, kept: Kept | None = None) -> None:
        self._state = state
        self._kept = kept or Kept()
        self._changed = False

    def ask_checkpoint(self, attempt: str, until_ms: int, now: int) -> None:
        """Has an attempt told to save its work."""
        self._keep(attempt, Asked(until_ms, now))

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

    def answer(self, attempt: AttemptRecord, step: int, durable_step: int) -> Notice:
        """What an attempt is told that has come to a step and has saved its work up to another."""
        asked = self._kept.checkpoints.get(attempt.key)
        if asked is not None and asked.durable_step is None:
            heard = with_report(asked, step, durable_step)
            if heard != asked:
                self._keep(attempt.key, heard)
        return notice_in(self._kept, attempt.key, self._state.now)

    def now_for(self, attempt: AttemptRecord) -> Notice:
        """What an attempt is told that says nothing of its steps."""
        return notice_in(self._kept, attempt.key, self._state.now)

    def _keep(self, attempt: str, asked: Asked) -> None:
        self._changed = True
        self._kept.checkpoints[attempt] = asked

    def _forget_the_gone(self) -> None:
        present = {attempt.key for attempt in self._state.attempts_present()}
        self._kept.stops = {key: at for key, at in self._kept.stops.items() if key in present}
        self._kept.checkpoints = {key: at for key, at in self._kept.checkpoints.items() if key in present}
        self._changed = True


def with_report(asked: Asked, step: int, durable_step: int) -> Asked:
    """A request after a report. It is done once everything is durable that was done by the first report after it."""
    from_step = asked.from_step
    if from_step is None:
        # An attempt that reports no steps has saved once its durable step has grown.
        from_step = step if step >= max(durable_step, 1) else durable_step + 1
    saved = durable_step if durable_step >= from_step else None
    return msgspec.structs.replace(asked, from_step=from_step, durable_step=saved)
