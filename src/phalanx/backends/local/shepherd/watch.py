"""Watching over the tasks of a service: probed by turns, and restarted when they end or are not well."""

from __future__ import annotations

import signal
from collections.abc import Callable

from phalanx.backends.local.attempt_files import Probe
from phalanx.backends.local.host.processes import signal_process
from phalanx.backends.local.shepherd.loop import Loop, Timer
from phalanx.backends.local.shepherd.probe import fork_probe
from phalanx.backends.local.shepherd.tasks.task import Task


class Watch:
    """The probes of one task. `on_sick` is called once the task has failed as many in a row as it may.

    While it is frozen, as `is_awake` tells, it cannot answer, and that is no failure.
    """

    def __init__(
        self, loop: Loop, probe: Probe, task: Task, is_awake: Callable[[], bool], on_sick: Callable[[Task], None]
    ) -> None:
        self._loop = loop
        self._probe = probe
        self._task = task
        self._is_awake = is_awake
        self._on_sick = on_sick
        self._failures = 0
        self._child = 0
        self._next: Timer = loop.after(probe["after_ms"] + probe["interval_ms"], self._look)

    def _look(self) -> None:
        if not self._is_awake():
            self._look_later()
            return
        self._child = fork_probe(self._probe, self._task)
        self._next = self._loop.after(self._probe["timeout_ms"], self._give_up)

    def _give_up(self) -> None:
        signal_process(self._child, signal.SIGKILL)

    def reap(self, pid: int, status: int) -> bool:
        """Takes note of how a look came out; False if the child is none of ours."""
        if pid != self._child:
            return False
        self._child = 0
        self._next.call_off()
        if self._is_awake():
            self._failures = 0 if status == 0 else self._failures + 1
            self._task.healthy = status == 0
        if self._failures >= self._probe["failures"]:
            self._on_sick(self._task)
        else:
            self._look_later()
        return True

    def _look_later(self) -> None:
        self._next = self._loop.after(self._probe["interval_ms"], self._look)

    def end(self) -> None:
        """Looks no more."""
        self._next.call_off()
        if self._child:
            self._give_up()
