"""Turns: has attempts that share devices run one after the other, by telling their shepherds when to rest."""

from __future__ import annotations

import time
from collections.abc import Callable

from phalanx.backends.local.attempt_files import Turn
from phalanx.backends.local.turn_order import Key, TurnOrder
from phalanx.backends.local.wire import Message

LEASE_TURNS, LEASE_MS = 2, 10_000
"""A rest ends by itself after so many turns and so long: no attempt stays frozen for want of a scheduler. A turn that
is prolonged to the end of a step takes two at most.
"""

ANSWER_MS = 1_000
"""How much longer than a shepherd waits for the end of a step its word is waited for."""

MOVING_MS = 120_000
"""How long moving device memory to the host may take: the next attempt needs the memory."""


class Turns:
    """Keeps a turn order and the time. `send` reaches the shepherd of an attempt.

    An attempt that is to rest only at the end of a step has up to one more turn for that; until it rests, the next on
    its devices is not let go on. The same holds where resting attempts `leave_memory` to others.
    """

    def __init__(self, turn_ms: int, send: Callable[[Key, Message], None], leave_memory: bool) -> None:
        self._turn_ms = turn_ms
        self._send = send
        self._moving_ms = MOVING_MS if leave_memory else 0
        self._memory_mb: dict[Key, int] = {}
        self._rota = TurnOrder()
        self._told_to_rest: dict[Key, bool] = {}
        self._at_step: dict[Key, bool] = {}
        self._finishing: dict[Key, float] = {}
        self._ends_s: float | None = None

    def join(self, key: Key, turn: Turn) -> None:
        """Has an attempt take turns from now on."""
        self._rota.join(key, turn)
        self._at_step[key] = turn.get("at_step", False)
        self._memory_mb[key] = turn.get("memory_mb", 0) if self._moving_ms else 0
        # What it does now is not known: it may just have been started, or resumed.
        self._told_to_rest.pop(key, None)
        self._arrange()

    def leave(self, key: Key) -> None:
        """Has an attempt take turns no longer."""
        self._rota.leave(key)
        for known in (self._told_to_rest, self._at_step, self._finishing, self._memory_mb):
            known.pop(key, None)
        self._arrange()

    def rests(self, key: Key) -> None:
        """Takes note that an attempt rests, as it was told to."""
        if self._finishing.pop(key, None) is not None:
            self._arrange()

    def patience_s(self) -> float | None:
        """How long until a turn is over, or no answer is waited for any more; None if no attempt waits for it."""
        moments_s = list(self._finishing.values())
        if self._ends_s is not None:
            moments_s.append(self._ends_s)
        return max(min(moments_s) - time.monotonic(), 0) if moments_s else None

    def look(self) -> None:
        """Goes on to the next turn once this one is over."""
        now_s = time.monotonic()
        late = [key for key, until_s in self._finishing.items() if until_s <= now_s]
        for key in late:
            del self._finishing[key]
        if self._ends_s is not None and self._ends_s <= now_s:
            self._rota.turn()
            # An attempt that rests on is told again, lest the rest end by itself.
            self._told_to_rest = {key: rests for key, rests in self._told_to_rest.items() if not rests}
            self._ends_s = None
            self._arrange()
        elif late:
            self._arrange()

    def _arrange(self) -> None:
        """Tells attempts whose rest begins or ends; the former first, so that as few as can be run at once."""
        resting = self._rota.resting
        for key in resting:
            if not self._told_to_rest.get(key, False):
                self._have_rest(key)
        for key in self._rota.running:
            self._finishing.pop(key, None)
            if self._told_to_rest.get(key, True) and not any(self._rota.meet(key, each) for each in self._finishing):
                self._send(key, {"do": "go on"})
                self._told_to_rest[key] = False
        if not resting or self._finishing:
            self._ends_s = None
        elif self._ends_s is None:
            self._ends_s = time.monotonic() + self._turn_ms / 1000

    def _have_rest(self, key: Key) -> None:
        """Has an attempt rest; one that runs, and is to end its turn so, at the end of a step."""
        ran = self._told_to_rest.get(key) is False
        finishes = self._at_step.get(key, False) and ran
        patience_ms = self._turn_ms if finishes else 0
        over_mb = self._memory_mb.get(key, 0)
        for_ms = LEASE_TURNS * self._turn_ms + LEASE_MS + 2 * self._moving_ms
        self._send(key, {"do": "rest", "for_ms": for_ms, "patience_ms": patience_ms, "over_mb": over_mb})
        self._told_to_rest[key] = True
        if finishes or (ran and over_mb):
            self._finishing[key] = time.monotonic() + (patience_ms + ANSWER_MS + self._moving_ms) / 1000
