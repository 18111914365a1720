"""The shepherd of one attempt: starts its tasks together, ends them together, and puts down what became of them.

It is told what to do by numbered actions, each carried out once, and tells whoever watches. What it puts down is
durable before it is told, so that the end of an attempt is known even if nobody was there to hear of it.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from functools import partial

from phalanx.backends.local.folder import AttemptFolder, write_durably
from phalanx.backends.local.papers import Answer, AttemptState, Ending, Order, TaskOrder
from phalanx.backends.local.processes import descendants, signal_process
from phalanx.backends.local.shepherd.idle import Idleness
from phalanx.backends.local.shepherd.launch import READY, failure
from phalanx.backends.local.shepherd.loop import Loop, Timer
from phalanx.backends.local.shepherd.muster import Failure, Muster
from phalanx.backends.local.shepherd.task import Task
from phalanx.backends.local.shepherd.watch import Watch
from phalanx.backends.local.wire import Message, Wire, listen_at, stop_listening

RESTARTS_MAX = 5
"""Restarts of a task in a row before the whole attempt is given up."""

RESTART_FIRST_MS, RESTART_MAX_MS = 500, 60_000
STEADY_MS = 60_000
"""A task that has run so long counts as well: its restarts are forgotten."""

FREEZE_LOOKS_MAX = 50
IDLE_LOOKS = 4

Pending = tuple[int, int]
"""Term and number of an action that is under way."""


class Shepherd:
    """Looks after one attempt."""

    def __init__(self, folder: AttemptFolder, order: Order) -> None:
        self.folder = folder
        self.order = order
        self.done = False
        self.loop = Loop(self._reap)
        self._phase = "starting"
        self._newest = order["seq"]
        self._answers: list[Answer] = []
        self._ending: Ending | None = None
        self._tasks: dict[int, Task] = {}
        self._muster: Muster | None = None
        self._starting: Pending | None = (order["term"], order["seq"])
        self._resizing: Pending | None = None
        self._joining: list[TaskOrder] = []
        self._stops: list[Pending] = []
        self._grace: Timer | None = None
        self._watches: dict[int, Watch] = {}
        self._watchers: list[Wire] = []
        self._sessions: dict[int, Wire] = {}
        self._gang_version = 0
        self._unstarted: Failure | None = None
        self._actions = {"stop": self._stop, "suspend": self._suspend, "resume": self._resume, "resize": self._resize}

    def run(self, first: socket.socket | None) -> None:
        """Starts the attempt and stays with it to its end."""
        door = listen_at(self.folder.path)
        self.loop.watch(door, lambda: self._admit(Wire(door.accept()[0])))
        if first is not None:
            wire = Wire(first)
            self._admit(wire)
            self._watchers.append(wire)
        self._muster_tasks(self.order["tasks"])
        self._look_for_idleness()
        while not self.done:
            self.loop.turn()
            self._settle()

    def _admit(self, wire: Wire) -> None:
        self.loop.watch(wire, lambda: self._hear(wire))

    def _hear(self, wire: Wire) -> None:
        messages = wire.receive()
        if messages is None:
            self.loop.forget(wire)
            if wire in self._watchers:
                self._watchers.remove(wire)
            for pid in [pid for pid, session in self._sessions.items() if session is wire]:
                signal_process(pid, signal.SIGHUP)
            wire.close()
            return
        for message in messages:
            self._obey(message, wire)

    def _obey(self, message: Message, wire: Wire) -> None:
        match message["do"]:
            case "watch":
                self._watchers.append(wire)
                wire.send({"answers": self._answers, "ending": None})
            case "exec":
                self._exec(message, wire)
            case "stop" | "suspend" | "resume" | "resize":
                self._act(message)

    def _act(self, message: Message) -> None:
        """Takes an action on, unless it was already; one that a newer has overtaken is refused."""
        action = (message["term"], message["seq"])
        known = [answer for answer in self._answers if answer["seq"] == action[1]]
        if known:
            self._tell({"answers": known, "ending": None})
        elif action in (self._starting, self._resizing, *self._stops):
            return
        elif action[1] < self._newest:
            self._answer(action, f"action {self._newest} of this attempt came first", retryable=False)
        else:
            self._newest = action[1]
            self._actions[message["do"]](action, message)

    def _stop(self, action: Pending, message: Message) -> None:
        self._stops.append(action)
        if self._muster is not None and self._starting is not None:
            self._muster.call_off("stopped while it was starting")
        if self._ending is None:
            self._ending = Ending(outcome="stopped", exit_code=0, reason=message["reason"])
        self._end_tasks(message["grace_ms"], message["reason"])

    def _suspend(self, action: Pending, message: Message) -> None:
        if self._phase != "running" or self._muster is not None:
            self._answer(action, f"it is {self._phase}, not running")
            return
        self._phase = "suspended"
        self._freeze()
        self._answer(action)

    def _resume(self, action: Pending, message: Message) -> None:
        if self._phase != "suspended":
            self._answer(action, f"it is {self._phase}, not suspended")
            return
        self._phase = "running"
        for each in descendants(os.getpid()):
            signal_process(each.pid, signal.SIGCONT)
        self._answer(action)

    def _resize(self, action: Pending, message: Message) -> None:
        if self._phase != "running" or self._muster is not None or self._resizing is not None:
            self._answer(action, f"it is {self._phase}, not running at its size")
            return
        self._resizing = action
        self._joining = message["add"]
        for rank in message["remove"]:
            task = self._tasks[rank]
            task.leaving = True
            task.ask_to_leave()
            self.loop.after(self.order["grace_ms"], partial(self._kill_task, task))

    def _exec(self, message: Message, wire: Wire) -> None:
        task = self._tasks.get(message["rank"])
        files, wire.files = wire.files, []
        if task is None or not task.alive or len(files) != 3:
            wire.send({"error": f"task {message['rank']} does not run"})
        else:
            pid, pipe = task.fork_beside(message["argv"], (files[0], files[1], files[2]))
            self._sessions[pid] = wire
            self.loop.watch(pipe, lambda: self._hear_recruit(pipe, wire))
        for handle in files:
            os.close(handle)

    def _hear_recruit(self, pipe: int, wire: Wire) -> None:
        """Passes on why a command beside a task could not begin."""
        told = os.read(pipe, 4096)
        self.loop.forget(pipe)
        os.close(pipe)
        failed = failure(READY + told)
        if failed is not None:
            wire.send({"error": failed[0]})

    def _muster_tasks(self, orders: list[TaskOrder]) -> None:
        name = f"{self.order['job']}.{self.order['attempt']}"
        tasks = [Task(order, self.folder, self.order["pens"], name) for order in orders]
        self._tasks.update((task.rank, task) for task in tasks)
        self._write_gang()
        self._launch(tasks)

    def _launch(self, tasks: list[Task]) -> None:
        self._muster = Muster(self.loop, tasks, on_ready=self._put_down)
        self._muster.begin()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            self._bury(pid, status)

    def _bury(self, pid: int, status: int) -> None:
        session = self._sessions.pop(pid, None)
        if session is not None:
            session.send({"exit": os.waitstatus_to_exitcode(status)})
            return
        for task in self._tasks.values():
            if task.pid == pid:
                task.note_end(status)
                task.kill(descendants(os.getpid()))
                watch = self._watches.pop(task.rank, None)
                if watch is not None:
                    watch.end()
                return
        for watch in list(self._watches.values()):
            if watch.reap(pid, status):
                return

    def _settle(self) -> None:
        """Goes on from wherever things stand."""
        if self._muster is not None and not self._settle_muster(self._muster):
            return
        if self._ending is None:
            self._settle_tasks()
        if self._ending is not None and self._muster is None and not any(task.alive for task in self._tasks.values()):
            self._finish()

    def _settle_tasks(self) -> None:
        self._settle_resize()
        for task in list(self._tasks.values()):
            if task.ended and not task.leaving and task.timer is None:
                self._settle_ended(task)
        if self._ending is None and all(task.ended == "exit 0" for task in self._tasks.values()):
            self._ending = Ending(outcome="succeeded", exit_code=0, reason="")

    def _settle_muster(self, muster: Muster) -> bool:
        """Whether nobody is on the way any more."""
        if muster.failure is not None:
            for task in muster.tasks:
                task.why_killed = "unstarted"
                task.kill(descendants(os.getpid()))
        if not muster.over:
            return False
        self._muster = None
        if muster.failure is None:
            self._settle_started(muster)
        else:
            self._settle_unstarted(muster)
        return True

    def _settle_started(self, muster: Muster) -> None:
        probe = self.order["probe"]
        for task in muster.tasks:
            if probe is not None and task.alive:
                self._watches[task.rank] = Watch(self.loop, probe, task, self._restart_sick)
        self._phase = "running"
        if self._starting is not None:
            action, self._starting = self._starting, None
            self._answer(action)
        elif self._resizing is not None:
            action, self._resizing = self._resizing, None
            self._answer(action)

    def _settle_unstarted(self, muster: Muster) -> None:
        why = muster.failure
        assert why is not None
        if self._starting is not None:
            self._unstarted = why
            self._ending = self._ending or Ending(outcome="unstarted", exit_code=0, reason=why.reason)
        elif self._resizing is not None:
            action, self._resizing = self._resizing, None
            for task in muster.tasks:
                del self._tasks[task.rank]
            self._write_gang()
            self._answer(action, why.reason, why.retryable, why.node)
        else:
            for task in muster.tasks:
                self._fail(task, f"exit 127: {why.reason}")

    def _settle_resize(self) -> None:
        leaving = [task for task in self._tasks.values() if task.leaving]
        if self._resizing is None or any(task.alive for task in leaving):
            return
        for task in leaving:
            task.clear()
            del self._tasks[task.rank]
        joining, self._joining = self._joining, []
        if joining:
            self._muster_tasks(joining)
        elif self._muster is None:
            self._write_gang()
            action, self._resizing = self._resizing, None
            self._answer(action)

    def _settle_ended(self, task: Task) -> None:
        if self.order["service"]:
            if task.restarts >= RESTARTS_MAX:
                self._fail(task, task.report())
            else:
                delay_ms = min(RESTART_FIRST_MS << task.restarts, RESTART_MAX_MS)
                task.timer = self.loop.after(delay_ms, partial(self._restart, task))
                self._put_down()
        elif task.ended != "exit 0":
            self._fail(task, task.report())

    def _restart(self, task: Task) -> None:
        if self._ending is not None:
            return
        if self._muster is not None:
            task.timer = self.loop.after(RESTART_FIRST_MS, partial(self._restart, task))
            return
        task.timer = None
        task.restarts += 1
        self.loop.after(STEADY_MS, partial(self._forgive, task, task.pid))
        self._launch([task])

    def _forgive(self, task: Task, pid_before: int) -> None:
        if task.alive and task.pid != pid_before:
            task.restarts = 0

    def _restart_sick(self, task: Task) -> None:
        task.why_killed = "probe"
        task.ask_to_leave()
        self.loop.after(self.order["grace_ms"], partial(self._kill_task, task))

    def _fail(self, task: Task, reason: str) -> None:
        """One that failed ends all: the others get notice."""
        if self._ending is None:
            self._ending = Ending(outcome="failed", exit_code=task.exit_code, reason=reason)
            self._end_tasks(self.order["grace_ms"], "failed")

    def _end_tasks(self, grace_ms: int, reason: str) -> None:
        """Gives notice to all, and kills after the grace; a second notice can only shorten it."""
        self._phase = "stopping"
        write_durably(self.folder.notice_path, {"reason": reason, "until_ms": int(time.time() * 1000) + grace_ms})
        self._put_down()
        for task in self._tasks.values():
            task.ask_to_leave()
        timer = self.loop.after(grace_ms, self._sweep)
        if self._grace is not None and self._grace.at_s < timer.at_s:
            timer.call_off()
        else:
            self._grace = timer

    def _sweep(self) -> None:
        for each in descendants(os.getpid()):
            signal_process(each.pid, signal.SIGKILL)

    def _kill_task(self, task: Task) -> None:
        if task.alive and (task.leaving or task.why_killed):
            task.kill(descendants(os.getpid()))

    def _finish(self) -> None:
        """Ends once not one process is left."""
        self._reap()
        if descendants(os.getpid()):
            self._sweep()
            return
        for task in self._tasks.values():
            task.clear()
            _run(task.order["remove"])
        self._phase = "ended"
        told = len(self._answers)
        self._answer_rest()
        self._put_down()
        self._tell({"answers": self._answers[told:], "ending": self._ending})
        stop_listening(self.folder.path)
        self.done = True

    def _answer_rest(self) -> None:
        """Answers what is under way, now that no process is left."""
        assert self._ending is not None
        why = self._unstarted or Failure(f"the attempt has ended: {self._ending['reason']}", True, "")
        for action in (self._starting, self._resizing):
            if action is not None:
                self._answers.append(_answer_to(action, why.reason, why.retryable, why.node))
        self._answers += map(_answer_to, self._stops)

    def _look_for_idleness(self) -> None:
        window_ms = self.order["idle_ms"] // IDLE_LOOKS
        if window_ms:
            idleness = Idleness(self.folder)
            self.loop.after(window_ms, partial(self._look_again, idleness, window_ms, 0))

    def _look_again(self, idleness: Idleness, window_ms: int, idle_looks: int) -> None:
        idle = idleness.was_idle(descendants(os.getpid()), len(self._sessions), window_ms)
        idle_looks = idle_looks + 1 if idle and self._phase == "running" else 0
        if idle_looks >= IDLE_LOOKS and self._ending is None:
            reason = f"idle: no session and no work for {self.order['idle_ms'] // 1000} s"
            self._ending = Ending(outcome="succeeded", exit_code=0, reason=reason)
            self._end_tasks(self.order["grace_ms"], reason)
        else:
            self.loop.after(window_ms, partial(self._look_again, idleness, window_ms, idle_looks))

    def _freeze(self) -> None:
        """Stops every process where it is; who was being born meanwhile is found at the next look."""
        for _ in range(FREEZE_LOOKS_MAX):
            awake = [each for each in descendants(os.getpid()) if each.state not in ("T", "t")]
            if not awake:
                return
            for each in awake:
                signal_process(each.pid, signal.SIGSTOP)
            time.sleep(0.002)

    def _answer(self, action: Pending, reason: str = "", retryable: bool = True, node: str = "") -> None:
        answer = _answer_to(action, reason, retryable, node)
        self._answers.append(answer)
        self._put_down()
        self._tell({"answers": [answer], "ending": None})

    def _tell(self, message: Message) -> None:
        for wire in list(self._watchers):
            wire.send(message)

    def _put_down(self) -> None:
        self.folder.write_state(
            AttemptState(
                phase=self._phase,
                pid=os.getpid(),
                newest=self._newest,
                tasks=[task.state() for task in self._tasks.values()],
                answers=self._answers,
                ending=self._ending if self._phase == "ended" else None,
            )
        )

    def _write_gang(self) -> None:
        """Who is in the gang now, for tasks that stay while it changes."""
        self._gang_version += 1
        members = [
            {key: task.order[key] for key in ("rank", "role", "node", "devices")} for task in self._tasks.values()
        ]
        write_durably(
            self.folder.gang_path, {"version": self._gang_version, "world_size": len(members), "tasks": members}
        )


def _answer_to(action: Pending, reason: str = "", retryable: bool = True, node: str = "") -> Answer:
    return Answer(term=action[0], seq=action[1], ok=not reason, reason=reason, retryable=retryable, node=node)


def _run(argv: list[str]) -> None:
    """Runs a command to clear up with, and minds neither its words nor its outcome."""
    if argv:
        import subprocess

        signal.set_wakeup_fd(-1)
        quiet = subprocess.DEVNULL
        subprocess.run(argv, stdin=quiet, stdout=quiet, stderr=quiet, timeout=60, check=False)
