"""One task as its shepherd sees it: its process, where that lives, and how it ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection
from contextlib import suppress

from phalanx.backends.local.attempt_files import TaskOrder, TaskState
from phalanx.backends.local.folder import STREAMS, AttemptFolder
from phalanx.backends.local.host.cgroup import Pen
from phalanx.backends.local.host.processes import Process, descendants, process, signal_group, signal_process, variable
from phalanx.backends.local.logs.times import begin_times
from phalanx.backends.local.shepherd.loop import Timer
from phalanx.backends.local.shepherd.tasks.confinement import confinement, write_variables
from phalanx.backends.local.shepherd.tasks.inside import beside_the_first
from phalanx.backends.local.shepherd.tasks.launch import Recruit, Stage
from phalanx.backends.local.shepherd.tasks.remains import WRITERS, helpers, lives, noticed
from phalanx.backends.local.shepherd.terminal import LOG_MODE, Terminal


class Task:
    """A task of the attempt. `ended` says how its process ended: `exit 0`, `signal SIGSEGV`, `oom`; empty before."""

    def __init__(self, order: TaskOrder, folder: AttemptFolder, pen: Pen) -> None:
        self.order = order
        self.rank = order["rank"]
        self.pid = 0
        self.began = 0
        self.status = 0
        self.ended = ""
        self.restarts = 0
        self.healthy = True
        self.leaving = False
        self.why_killed = ""
        self.told_at_s: float | None = None
        self.remains: list[Process] = []
        self.timer: Timer | None = None
        self.terminal: Terminal | None = None
        self._oom_kills_before = 0
        self._folder = folder
        self._pen = pen

    def fork(self, stage: Stage) -> int:
        """Brings the task to the edge of its command; the pipe through which it tells of itself."""
        order = self.order
        self._pen.make(order["cpus_milli"], order["memory_mb"])
        for stream in STREAMS:
            begin_times(self._folder.log_path(self.rank, stream))
        if "inside" in order:
            write_variables(order["inside_path"], order["inside"])
        env = {**order["env"], "PHALANX_TASK_RESTART_COUNT": str(self.restarts)}
        recruit = Recruit(order["argv"], env, order["workdir"], confinement(order))
        self.ended, self.why_killed, self.healthy = "", "", True
        self.told_at_s, self.remains = None, []
        self._oom_kills_before = self._pen.oom_kills()
        self.pid, pipe = recruit.fork(self._streams, stage)
        if self.terminal is not None:
            self.terminal.hand_over()
        self._pen.take(self.pid)
        born = process(self.pid)
        self.began = born.began if born else 0
        return pipe

    def fork_beside(self, argv: list[str], files: tuple[int, int, int]) -> tuple[int, int]:
        """Runs a command beside the task, as the same user in the same surroundings."""
        order = self.order
        enter = order["enter"]
        if enter and os.isatty(files[0]):
            enter = [*enter[:-1], "--tty", enter[-1]]
        recruit = Recruit([*enter, *argv], order["env"], order["workdir"], confinement(order, self.pid))
        pid, pipe = recruit.fork(lambda: files, None)
        try:
            self._pen.take(pid)
        except OSError:
            # Outside the task's limits nothing may run.
            signal_process(pid, signal.SIGKILL)
            os.close(pipe)
            raise
        return pid, pipe

    def lend_memory(self, memory_mb: int) -> None:
        """Lets it have so much beyond its limit: device memory on the host counts as its own."""
        if self.order["memory_mb"]:
            with suppress(OSError):
                self._pen.limit_memory(self.order["memory_mb"] + memory_mb)

    def _streams(self) -> tuple[int, int, int]:
        if self.terminal is not None:
            return self.terminal.theirs, self.terminal.theirs, self.terminal.theirs
        outs = [
            os.open(self._folder.log_path(self.rank, stream), os.O_WRONLY | os.O_APPEND | os.O_CREAT, LOG_MODE)
            for stream in STREAMS
        ]
        return os.open(os.devnull, os.O_RDONLY), outs[0], outs[1]

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self.pid > 0 and not self.ended

    def note_end(self, status: int) -> None:
        """Takes down how its process ended."""
        self.status = os.waitstatus_to_exitcode(status)
        if self.why_killed:
            self.ended = self.why_killed
        elif self._pen.oom_kills() > self._oom_kills_before:
            self.ended = "oom"
        elif self.status < 0:
            self.ended = f"signal {signal.Signals(-self.status).name}"
        else:
            self.ended = f"exit {self.status}"

    @property
    def exit_code(self) -> int:
        """The exit code as a shell gives it."""
        return self.status if self.status >= 0 else 128 - self.status

    def report(self) -> str:
        """How it ended, for people."""
        words = f"{self.ended}: task {self.rank} ({self.order['role']}) on {self.order['node']}"
        if self.ended == "oom":
            return f"{words} ran out of its {self.order['memory_mb']} MB of memory"
        return words

    def ask_to_leave(self) -> None:
        """Gives notice to its process group, and to that of the first process in its container."""
        if self.alive:
            self.told_at_s = time.monotonic()
            signal_group(self.pid, signal.SIGTERM)
            own = [each for each in descendants(os.getpid()) if self.owns(each)]
            # The container engine tells the first process alone.
            for each in beside_the_first(own) if self.order["enter"] else ():
                signal_process(each.pid, signal.SIGTERM)
            # One that is frozen hears nothing until it is thawed, and what it needs to save has sessions of its own.
            for each in own:
                signal_process(each.pid, signal.SIGCONT)

    def kill(self, attempt_process: list[Process]) -> None:
        """Kills whatever is left of it among the shepherd's descendants."""
        for each in attempt_process:
            if self.owns(each):
                signal_process(each.pid, signal.SIGKILL)

    def may_finish(self, attempt_process: list[Process]) -> list[Process]:
        """Of the shepherd's descendants, those of it that have the grace when its main process has ended."""
        told = noticed(attempt_process, self.pid) if self.told_at_s is not None else []
        return [*told, *(each for each in helpers(attempt_process, WRITERS) if self.owns(each))]

    def clear_out(self, attempt_process: list[Process], kinds: Collection[str]) -> None:
        """Kills what its main process left, but for what may finish, which it notes, and helpers of some kinds."""
        self.remains = self.may_finish(attempt_process)
        spared = {each.pid for each in (*self.remains, *helpers(attempt_process, kinds))}
        self.kill([each for each in attempt_process if each.pid not in spared])

    def grace_left_ms(self, grace_ms: int) -> int:
        """What is left of its grace, which begins with the notice, or with the end of its main process."""
        told_for_s = 0.0 if self.told_at_s is None else time.monotonic() - self.told_at_s
        return max(0, grace_ms - int(told_for_s * 1000))

    @property
    def is_finishing(self) -> bool:
        """Whether something that its main process left goes on."""
        return any(lives(each) for each in self.remains)

    def owns(self, each: Process) -> bool:
        """Whether a descendant of the shepherd is of this task: by session, or by what it was started with."""
        if each.pid == self.pid or each.session == self.pid:
            return True
        return variable(each.pid, "PHALANX_RANK") == str(self.rank)

    def say(self, line: str) -> None:
        """Adds a line of ours to what it printed, where a user that looks for the reason of something will find it."""
        with suppress(OSError), open(self._folder.log_path(self.rank, "err"), "a") as log:
            log.write(f"phalanx: {line}\n")

    def clear(self) -> None:
        """Removes what it leaves behind once its processes are gone."""
        self._pen.remove()

    def state(self) -> TaskState:
        """What is known of it."""
        return TaskState(
            rank=self.rank,
            pid=self.pid,
            began=self.began,
            restarts=self.restarts,
            healthy=self.healthy,
            ended=self.ended,
        )
