"""Telling how far a study is, into its folder."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

import msgspec

from phalanx.engine.state.state import State
from phalanx.server.studies.shelf import PROGRESS, Progress, write
from phalanx.simulate.studies.table import duration_text

SECONDS_BETWEEN = 0.3
TURNS_BETWEEN_LOOKS = 500
"""Turns are far quicker than a look at the clock."""


class Telling:
    """Writes down how much is done, now and then."""

    def __init__(self) -> None:
        self._told_s = 0.0

    def __call__(self, done: int, total: int, text: str) -> None:
        if monotonic() - self._told_s >= SECONDS_BETWEEN:
            write(Path(PROGRESS), msgspec.json.encode(Progress(done, total, text)))
            self._told_s = monotonic()


class Watch:
    """Shown the State after every turn of one of several runs; tells how many jobs of all have ended."""

    def __init__(self, telling: Telling, before: int, total: int, policy: str) -> None:
        self._telling, self._before, self._total, self._policy = telling, before, total, policy
        self._turns = 0

    def __call__(self, state: State) -> None:
        self._turns += 1
        if self._turns % TURNS_BETWEEN_LOOKS == 1:
            ended = len(state.jobs) - state.in_line - sum(map(len, state.runs.values()))
            told = f"{self._policy}: {duration_text(state.now / 1000)} of virtual time"
            self._telling(self._before + ended, self._total, told)
