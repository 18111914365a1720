"""The course of a future: how full the cluster is and how many jobs are pending, in steps that get longer with it."""

from __future__ import annotations

from typing import Any

from phalanx.engine.state.state import State

STEPS_MAX = 160
FIRST_STEP_MS = 1_000


class Course:
    """Looks at a State at most once a step: going through all nodes at every turn would take longer than deciding."""

    def __init__(self, state: State) -> None:
        self._began_ms = state.now
        self._step_ms = FIRST_STEP_MS
        self._due_ms = self._looked_ms = state.now
        self._seen: dict[int, tuple[int, int]] = {}

    def look(self, state: State) -> None:
        """Notes down how it is, unless that was done at an earlier moment of the same step. Several turns may be of one
        moment, as where a stop is answered at once: the last of them counts.
        """
        if state.now < self._due_ms and state.now != self._looked_ms:
            return
        self._looked_ms = state.now
        step = (state.now - self._began_ms) // self._step_ms
        while step >= STEPS_MAX:
            self._join()
            step //= 2
        self._seen[step] = (sum(map(int.bit_count, state.capacity.held)), state.in_line)
        self._due_ms = self._began_ms + (step + 1) * self._step_ms

    def told(self) -> dict[str, Any]:
        """As plain data; in a step in which nothing was seen it is as before."""
        gpus, pending = [], []
        last = (0, 0)
        for step in range(max(self._seen, default=-1) + 1):
            last = self._seen.get(step, last)
            gpus.append(last[0])
            pending.append(last[1])
        return {"from_ms": self._began_ms, "step_ms": self._step_ms, "gpus_held": gpus, "jobs_pending": pending}

    def _join(self) -> None:
        """Two steps become one, which has what was seen first in either."""
        self._step_ms *= 2
        joined: dict[int, tuple[int, int]] = {}
        for step, seen in self._seen.items():
            joined.setdefault(step // 2, seen)
        self._seen = joined
