"""Turns: has attempts that share devices run one after the other, by telling their shepherds when to rest."""

from __future__ import annotations

import time
from collections.abc import Callable

from phalanx.backends.local.papers import Turn
from phalanx.backends.local.rota import Key, Rota
from phalanx.backends.local.wire import Message

LEASE_TURNS, LEASE_MS = 2, 10_000
"""A rest ends by itself after so many turns and so long: nobody stays frozen for want of a scheduler."""


class Turns:
    """Keeps a rota and the time. `send` reaches the shepherd of an attempt."""

    def __init__(self, turn_ms: int, send: Callable[[Key, Message], None]) -> None:
        self._turn_ms = turn_ms
        self._send = send
        self._rota = Rota()
        self._told_to_rest: dict[Key, bool] = {}
        self._ends_s: float | None = None

    def join(self, key: Key, turn: Turn) -> None:
        """Has somebody take turns from now on."""
        self._rota.join(key, turn)
        # What it does now is not known: it may just have been started, or resumed.
        self._told_to_rest.pop(key, None)
        self._arrange()

    def leave(self, key: Key) -> None:
        """Has somebody take turns no longer."""
        self._rota.leave(key)
        self._told_to_rest.pop(key, None)
        self._arrange()

    def patience_s(self) -> float | None:
        """How long until the turn is over; None if nobody waits for it."""
        return None if self._ends_s is None else max(self._ends_s - time.monotonic(), 0)

    def look(self) -> None:
        """Goes on to the next turn once this one is over."""
        if self._ends_s is not None and self._ends_s <= time.monotonic():
            self._rota.turn()
            # Who rests on is told again, lest the rest end by itself.
            self._told_to_rest = {key: rests for key, rests in self._told_to_rest.items() if not rests}
            self._ends_s = None
            self._arrange()

    def _arrange(self) -> None:
        """Tells those whose rest begins or ends; the former first, so that as few as can be run at once."""
        resting = self._rota.resting
        for key in resting:
            if not self._told_to_rest.get(key, False):
                self._send(key, {"do": "rest", "for_ms": LEASE_TURNS * self._turn_ms + LEASE_MS})
        for key in self._rota.running:
            if self._told_to_rest.get(key, True):
                self._send(key, {"do": "go on"})
        self._told_to_rest = {**dict.fromkeys(resting, True), **dict.fromkeys(self._rota.running, False)}
        if not resting:
            self._ends_s = None
        elif self._ends_s is None:
            self._ends_s = time.monotonic() + self._turn_ms / 1000
