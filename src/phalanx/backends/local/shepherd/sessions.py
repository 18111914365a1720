"""Commands that run beside tasks, each on the line of whoever asked for it."""

from __future__ import annotations

import os
import signal

from phalanx.backends.local.processes import signal_process
from phalanx.backends.local.shepherd.launch import READY, failure
from phalanx.backends.local.shepherd.loop import Loop
from phalanx.backends.local.shepherd.task import Task
from phalanx.backends.local.wire import Message, Wire


class Sessions:
    """All such commands of an attempt."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._wires: dict[int, Wire] = {}

    def __len__(self) -> int:
        return len(self._wires)

    @property
    def pids(self) -> tuple[int, ...]:
        """Their processes, each the first of a session of the kernel's."""
        return tuple(self._wires)

    def open(self, message: Message, wire: Wire, task: Task | None) -> None:
        """Begins a command with the three files that came along."""
        files, wire.files = wire.files, []
        if task is None or not task.alive or len(files) != 3:
            wire.send({"error": f"task {message['rank']} does not run"})
        else:
            pid, pipe = task.fork_beside(message["argv"], (files[0], files[1], files[2]))
            self._wires[pid] = wire
            self._loop.watch(pipe, lambda: self._hear(pipe, wire))
        for handle in files:
            os.close(handle)

    def reap(self, pid: int, status: int) -> bool:
        """Tells how a command ended; False if the child is none of ours."""
        wire = self._wires.pop(pid, None)
        if wire is None:
            return False
        wire.send({"exit": os.waitstatus_to_exitcode(status)})
        return True

    def hang_up(self, wire: Wire) -> None:
        """Ends the commands of somebody who has gone."""
        for pid, other in self._wires.items():
            if other is wire:
                signal_process(pid, signal.SIGHUP)

    def _hear(self, pipe: int, wire: Wire) -> None:
        """Passes on why a command could not begin."""
        told = os.read(pipe, 4096)
        self._loop.forget(pipe)
        os.close(pipe)
        failed = failure(READY + told)
        if failed is not None:
            wire.send({"error": failed[0]})
