"""The course of a future: how full the cluster is and how many jobs are pending, in steps that get longer with it."""

from __future__ import annotations

from typing import Any

from phalanx.engine.state.state import State

STEPS_MAX = 160
FIRST_STEP_MS = 1_000


class Course:
    """How it is at every step from the beginning on. A State is gone through at most once a step: going through all
    nodes at every turn would take longer than deciding.
    """

    def __init__(self, state: State) -> None:
        self._began_ms = state.now
        self._step_ms = FIRST_STEP_MS
        self._seen: list[tuple[int, int]] = []

    def look(self, state: State, until_ms: int) -> None:
        """Notes down how it is at the steps before the next turn: what changes several times within a step is told as
        it was left.
        """
        while until_ms - self._began_ms > (STEPS_MAX - 1) * self._step_ms:
            self._join()
        new = -((self._began_ms - until_ms) // self._step_ms) - len(self._seen)
        if new > 0:
            self._seen += [_seen(state)] * new

    def told(self, state: State) -> dict[str, Any]:
        """As plain data, with how it is at the end."""
        gpus, pending = zip(*self._seen, _seen(state), strict=True)
        return {
            "from_ms": self._began_ms,
            "step_ms": self._step_ms,
            "gpus_held": list(gpus),
            "jobs_pending": list(pending),
        }

    def _join(self) -> None:
        """Two steps become one."""
        self._step_ms *= 2
        self._seen = self._seen[::2]


def _seen(state: State) -> tuple[int, int]:
    return sum(map(int.bit_count, state.capacity.held)), state.in_line
