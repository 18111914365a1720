"""Progress: a bar on a terminal's stderr, and nothing anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TypeAlias

from phalanx.cli.interrupt import Interrupt
from phalanx.engine.state.state import State
from phalanx.simulate.studies.batch import Stopped
from phalanx.simulate.studies.table import duration_text

TURNS_BETWEEN_LOOKS = 1000
"""Turns are far quicker than a look at the clock and a line on a screen."""

SECONDS_BETWEEN_LINES = 0.25

Tell: TypeAlias = Callable[[int, str], None]
"""Told how much is done, and what to say of it."""


class Follower:
    """A watch of a run: ends it when that is asked for, and tells from time to time how far it is."""

    def __init__(self, interrupt: Interrupt, tell: Tell | None) -> None:
        self._interrupt = interrupt
        self._tell = tell
        self._turns = 0
        self._told_s = 0.0

    def __call__(self, state: State) -> None:
        if self._interrupt.asked:
            raise Stopped
        self._turns += 1
        if self._tell is None or self._turns % TURNS_BETWEEN_LOOKS:
            return
        now_s = monotonic()
        if now_s - self._told_s >= SECONDS_BETWEEN_LINES:
            self._told_s = now_s
            present = state.in_line + sum(map(len, state.runs.values()))
            pending = f"{state.in_line:,} pending job{'' if state.in_line == 1 else 's'}"
            line = f"{duration_text(state.now / 1000)} of virtual time, {pending}"
            self._tell(len(state.jobs) - present, line)


@contextmanager
def bar(total: int, of: str) -> Iterator[Tell | None]:
    """A bar for so many things, on a terminal: then what tells it how many are done."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn(of), TextColumn("{task.description}"))
    # It is drawn when it is told something: a thread that draws by itself would take time from the run.
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True) as progress:
        task = progress.add_task("", total=total)

        def tell(done: int, line: str) -> None:
            progress.update(task, completed=done, description=line, refresh=True)

        yield tell
