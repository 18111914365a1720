"""Commands that run beside tasks, each on the line of its caller."""

from __future__ import annotations

import os
import signal
from functools import partial

from phalanx.backends.local.host.processes import descendants, signal_process
from phalanx.backends.local.shepherd.loop import Loop
from phalanx.backends.local.shepherd.tasks.launch import READY, failure
from phalanx.backends.local.shepherd.tasks.task import Task
from phalanx.backends.local.wire import Message, Wire

HANG_UP_MS = 5_000
"""How long a command may take to end once its caller has gone. What is left of its session then is killed."""

LOOK_MS = 250

SESSIONS_MAX = 128
"""How many commands run beside the tasks of an attempt at once: each takes descriptors of the shepherd's."""


class Sessions:
    """All such commands of an attempt."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._wires: dict[int, Wire] = {}
        self._pipes: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._wires)

    @property
    def pids(self) -> tuple[int, ...]:
        """Their processes, each the first of a session of the kernel's."""
        return tuple(self._wires)

    def open(self, message: Message, wire: Wire, task: Task | None) -> None:
        """Begins a command with the three files that came along."""
        files, wire.files = wire.files, []
        try:
            refused = self._open(message, wire, task, files)
        except OSError as error:
            refused = f"no command can be begun beside task {message['rank']} now: {error.strerror}"
        finally:
            for handle in files:
                os.close(handle)
        if refused:
            wire.send({"error": refused})

    def _open(self, message: Message, wire: Wire, task: Task | None, files: list[int]) -> str:
        """Begins a command; if it cannot, says why."""
        if task is None or not task.alive:
            return f"task {message['rank']} does not run"
        if len(files) != 3:
            return f"no command can be begun beside task {message['rank']} now: too many open files"
        if len(self._wires) >= SESSIONS_MAX:
            return f"{SESSIONS_MAX} commands run beside this job already: end one first"
        pid, pipe = task.fork_beside(message["argv"], (files[0], files[1], files[2]))
        self._wires[pid], self._pipes[pid] = wire, pipe
        self._loop.watch(pipe, partial(self._hear, pid))
        return ""

    def reap(self, pid: int, status: int) -> bool:
        """Tells how a command ended; False if the child is none of ours."""
        if pid not in self._wires:
            return False
        if pid in self._pipes:
            self._hear(pid)
        self._wires.pop(pid).send({"exit": os.waitstatus_to_exitcode(status)})
        return True

    def hang_up(self, wire: Wire) -> None:
        """Ends the commands of a caller that has gone, with all that they have started."""
        for pid in [pid for pid, other in self._wires.items() if other is wire]:
            for member in _members(pid):
                signal_process(member, signal.SIGHUP)
            self._see_off(pid, HANG_UP_MS)

    def _see_off(self, session: int, left_ms: int) -> None:
        """Looks until no process of a session is left. Looks are frequent, so that its number is not another's yet."""
        members = _members(session)
        if left_ms <= 0:
            for member in members:
                signal_process(member, signal.SIGKILL)
        if members:
            self._loop.after(LOOK_MS, partial(self._see_off, session, left_ms - LOOK_MS))

    def _hear(self, pid: int) -> None:
        """Passes on why a command could not begin."""
        pipe = self._pipes.pop(pid)
        told = os.read(pipe, 4096)
        self._loop.forget(pipe)
        os.close(pipe)
        failed = failure(READY + told)
        if failed is not None:
            self._wires[pid].send({"error": failed[0]})


def _members(session: int) -> list[int]:
    """The living processes of a session of the kernel's. Its first may not have made it yet."""
    return [each.pid for each in descendants(os.getpid()) if session in (each.pid, each.session)]
