"""The shepherd of one attempt: starts its tasks together, ends them together, and puts down what became of them.

It is told what to do by numbered actions, each carried out once, and tells whoever watches. What it puts down is
durable before it is told, so that the end of an attempt is known even if no server was there to hear of it.
"""

from __future__ import annotations

import os
import socket
import time
from functools import partial

from phalanx.backends.local.attempt_files import Ending, Order, TaskOrder
from phalanx.backends.local.folder import AttemptFolder
from phalanx.backends.local.host.cgroup import Pen, pen_name
from phalanx.backends.local.host.processes import descendants
from phalanx.backends.local.shepherd.answers import AnswerLog, Pending
from phalanx.backends.local.shepherd.attachments import Attachments
from phalanx.backends.local.shepherd.boundary import Boundary
from phalanx.backends.local.shepherd.forwards import connect_to_port
from phalanx.backends.local.shepherd.idle import Idleness
from phalanx.backends.local.shepherd.log_clock import LogClock
from phalanx.backends.local.shepherd.loop import Loop, Timer
from phalanx.backends.local.shepherd.rest import Rest
from phalanx.backends.local.shepherd.sessions import Sessions
from phalanx.backends.local.shepherd.suspension import Suspension
from phalanx.backends.local.shepherd.swap import Swap
from phalanx.backends.local.shepherd.tasks.remains import KEEPERS, NONE, kill_these
from phalanx.backends.local.shepherd.tasks.task import Task
from phalanx.backends.local.shepherd.tasks.task_set import Failure, TaskSet
from phalanx.backends.local.shepherd.tasks.tidy import any_left, kill_all, run_quietly
from phalanx.backends.local.shepherd.terminal import Terminal
from phalanx.backends.local.shepherd.watch import Watch
from phalanx.backends.local.wire import Message, Wire, listen_at, stop_listening

RESTARTS_MAX = 5
"""Restarts of a task in a row before the whole attempt is given up."""

RESTART_FIRST_MS, RESTART_MAX_MS = 100, 60_000
STEADY_MS = 60_000
"""A task that has run so long counts as well: its restarts are forgotten."""

LOOK_AGAIN_MS = 100
"""How soon killed processes are looked for again."""

WRITE_AGAIN_MS = 1_000
"""How soon an end that could not be put down, on a full disk, is written again. No server is told before."""

FROZEN = ("suspending", "suspended", "resuming")
"""Phases in which tasks do not answer."""

MOVING = ("suspending", "resuming")
"""Phases in which device memory is on its way: CUDA calls of its tasks wait."""

HOME_LOOK_MS = 2_000
"""How often it is looked whether the attempt's folder is still there: what runs could not be found without it."""


class Shepherd:
    """Looks after one attempt."""

    def __init__(self, folder: AttemptFolder, order: Order) -> None:
        self.folder = folder
        self.order = order
        self.done = False
        self.loop = Loop(self._reap)
        self._book = AnswerLog(folder, order["seq"], has_whole_gang=not order.get("bound", False))
        self._tasks = self._book.tasks
        self._sessions = Sessions(self.loop)
        self._attachments = Attachments(self._tasks)
        self._log_clock = LogClock(self.loop, folder)
        self._boundary = Boundary(self.loop, folder, self._ranks_alive)
        self._swap = Swap(self.loop)
        self._rest = Rest(
            self.loop,
            self._boundary,
            self._swap,
            lambda: self._sessions.pids,
            self._book.tell_rest,
            lambda: self._book.phase == "running",
        )
        self._suspension = Suspension(self._book, self._swap, lambda: self._sessions.pids, self._lose_suspended)
        self._watches: dict[int, Watch] = {}
        self._muster: TaskSet | None = None
        self._unstarted: Failure | None = None
        self._starting: Pending | None = (order["term"], order["seq"])
        self._resizing: Pending | None = None
        self._joining: list[TaskOrder] = []
        self._stops: list[Pending] = []
        self._grace: Timer | None = None
        self._is_grace_over = False
        self._ending: Ending | None = None
        self._homeless = False
        self._bond: Wire | None = None
        self._actions = {"stop": self._stop, "suspend": self._suspend, "resume": self._resume, "resize": self._resize}

    def run(self, first: socket.socket) -> None:
        """Starts the attempt and stays with it to its end. `first` is the line to the server that asked for it."""
        door = listen_at(self.folder.path)
        self.loop.watch(door, partial(self._answer, door))
        self._boundary.open(self.order.get("user", []))
        wire = Wire(first)
        if self.order.get("bound", False):
            self._bond = wire
        self._admit(wire)
        self._book.show(wire)
        self._muster_tasks(self.order["tasks"])
        self._look_home(self.folder.identity())
        self._log_clock.begin()
        if self.order["idle_ms"]:
            Idleness(self.loop, self.folder, self._is_kept, self._end_idle).begin(self.order["idle_ms"])
        while not self.done:
            self.loop.turn()
            self._settle()

    def _answer(self, door: socket.socket) -> None:
        """Takes a connection; without a descriptor for it, a little later."""
        try:
            self._admit(Wire(door.accept()[0]))
        except OSError:
            self.loop.forget(door)
            self.loop.after(LOOK_AGAIN_MS, lambda: self.loop.watch(door, partial(self._answer, door)))

    def _admit(self, wire: Wire) -> None:
        self.loop.watch(wire, lambda: self._hear(wire))

    def _hear(self, wire: Wire) -> None:
        messages = wire.receive()
        for message in messages or ():
            self._obey(message, wire)
        if messages is None:
            self.loop.forget(wire)
            self._book.forget(wire)
            self._sessions.hang_up(wire)
            self._attachments.hang_up(wire)
            wire.close()
            if wire is self._bond:
                self._end_unbound()

    def _end_unbound(self) -> None:
        """Ends everything at once: it must not go on where its end is not heard of."""
        if self._ending is None:
            self._ending = Ending(outcome="lost", exit_code=0, reason="lost: what had it started is gone")
        if self._muster is not None:
            self._muster.call_off("what had it started is gone")
        self._end_tasks(0, "lost")

    def _obey(self, message: Message, wire: Wire) -> None:
        match message["do"]:
            case "watch":
                self._book.show(wire)
            case "exec":
                self._sessions.open(message, wire, self._tasks.get(message["rank"]))
            case "attach":
                self._attachments.open(message, wire)
            case "forward":
                connect_to_port(message, wire, self._tasks.get(message["rank"]))
            case "resize terminal":
                self._attachments.resize(message)
            case "rest":
                if self._book.phase == "running" and self._muster is None and self._resizing is None:
                    self._rest.begin(message["for_ms"], message.get("patience_ms", 0), message.get("over_mb", 0))
                else:
                    self._book.tell_rest()
            case "go on":
                self._rest.end()
            case "stop" | "suspend" | "resume" | "resize":
                self._act(message)

    def _act(self, message: Message) -> None:
        """Takes an action on, unless it was already; one that a newer has overtaken is refused."""
        action = (message["term"], message["seq"])
        if self._book.tell_again(action[1]) or action in (self._starting, self._resizing, *self._stops):
            return
        if action[1] < self._book.newest:
            self._book.answer(action, Failure(f"action {self._book.newest} of this attempt came first", False))
        else:
            self._book.newest = action[1]
            self._rest.end()
            self._actions[message["do"]](action, message)

    def _stop(self, action: Pending, message: Message) -> None:
        self._stops.append(action)
        if self._muster is not None and self._starting is not None:
            self._muster.call_off("stopped while it was starting")
        if self._ending is None:
            self._ending = Ending(outcome="stopped", exit_code=0, reason=message["reason"])
        self._end_tasks(message["grace_ms"], message["reason"])

    def _suspend(self, action: Pending, message: Message) -> None:
        if self._book.phase != "running" or self._muster is not None or self._resizing is not None:
            self._book.answer(action, Failure(f"it is {self._book.phase}, not running"))
        elif self._swap.pid:
            self._book.answer(action, Failure("its device memory is being moved"))
        elif message.get("host_mb", 0):
            self._suspension.leave_devices(action, message["host_mb"])
        else:
            self._suspension.freeze(action)

    def _resume(self, action: Pending, message: Message) -> None:
        if self._book.phase != "suspended":
            self._book.answer(action, Failure(f"it is {self._book.phase}, not suspended"))
        elif self._suspension.is_swapped:
            self._suspension.have_devices(action, message.get("devices", {}), message.get("places", {}))
        else:
            self._suspension.thaw(action)

    def _lose_suspended(self, action: Pending, reason: str) -> None:
        """Ends an attempt that did not get its device memory back: none of it is of use without the rest."""
        self._starting = action
        self._unstarted = Failure(f"it could not go on: {reason}")
        self._ending = self._ending or Ending(outcome="unstarted", exit_code=0, reason=self._unstarted.reason)
        self._end_tasks(0, "failed")

    def _resize(self, action: Pending, message: Message) -> None:
        if self._book.phase != "running" or self._muster is not None or self._resizing is not None:
            self._book.answer(action, Failure(f"it is {self._book.phase}, not running at its size"))
            return
        self._resizing = action
        self._joining = message["add"]
        leaving = [self._tasks[rank] for rank in message["remove"]]
        for task in leaving:
            task.leaving = True
        # Before any signal, so that those that stay know why others end.
        self._book.write_gang(self._joining)
        for task in leaving:
            self._ask_to_leave(task)

    def _muster_tasks(self, orders: list[TaskOrder]) -> None:
        name = partial(pen_name, self.folder.path, self.order["job"], self.order["attempt"])
        tasks = [Task(order, self.folder, Pen(self.order["pens"], name(order["rank"]))) for order in orders]
        for task in tasks:
            if task.order.get("terminal"):
                log_path = self.folder.log_path(task.rank, "out")
                task.terminal = Terminal(self.loop, log_path, task.order["user"])
        self._tasks.update((task.rank, task) for task in tasks)
        self._book.write_gang()
        self._launch(tasks)

    def _launch(self, tasks: list[Task]) -> None:
        put_down = self._book.put_down if self._starting is None else self._book.put_down_surely
        self._muster = TaskSet(self.loop, tasks, on_ready=put_down)
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
        if self._sessions.reap(pid, status) or self._swap.reap(pid, status):
            return
        for task in self._tasks.values():
            if task.pid == pid:
                task.note_end(status)
                if task.terminal is not None:
                    task.terminal.end(task.status)
                self._clear_out(task)
                if task.rank in self._watches:
                    self._watches.pop(task.rank).end()
                return
        for watch in list(self._watches.values()):
            if watch.reap(pid, status):
                return

    def _clear_out(self, task: Task) -> None:
        """Kills what the main process of a task left, but for what has the grace to finish."""
        # Memory that is kept for the next trainer of a task is the task's own, as long as there will be one.
        goes_on = self.order["service"] and self._ending is None and not task.leaving
        task.clear_out(descendants(os.getpid()), KEEPERS if goes_on else NONE)
        if self._ending is None:
            # Else there is one grace for all.
            left_ms = task.grace_left_ms(self.order["grace_ms"])
            self.loop.after(left_ms, partial(kill_these, task.remains))

    def _settle(self) -> None:
        """Goes on from wherever things stand."""
        if self._muster is not None and not self._settle_muster(self._muster):
            return
        if self._ending is None:
            self._settle_tasks()
        if self._ending is not None and self._muster is None and not any(task.alive for task in self._tasks.values()):
            self._finish(self._ending)

    def _settle_tasks(self) -> None:
        self._settle_resize()
        for task in list(self._tasks.values()):
            if task.ended and not task.leaving and task.timer is None:
                self._settle_ended(task)
        if not self.order["service"] and all(task.ended == "exit 0" for task in self._tasks.values()):
            self._ending = Ending(outcome="succeeded", exit_code=0, reason="")

    def _settle_muster(self, task_set: TaskSet) -> bool:
        """Whether no process is on the way any more."""
        if task_set.failure is not None:
            for task in task_set.tasks:
                task.why_killed = "unstarted"
                task.kill(descendants(os.getpid()))
        if not task_set.over:
            return False
        self._muster = None
        if task_set.failure is None:
            self._settle_started(task_set)
        else:
            self._settle_unstarted(task_set, task_set.failure)
        return True

    def _settle_started(self, task_set: TaskSet) -> None:
        probe = self.order["probe"]
        for task in task_set.tasks:
            if probe is not None and task.alive:
                self._watches[task.rank] = Watch(self.loop, probe, task, self._is_awake, self._restart_sick)
        if self._starting is not None:
            self._book.phase = "running"
            action, self._starting = self._starting, None
            self._book.answer(action)
        elif self._resizing is not None:
            action, self._resizing = self._resizing, None
            self._book.answer(action)

    def _settle_unstarted(self, task_set: TaskSet, why: Failure) -> None:
        if self._starting is not None:
            self._unstarted = why
            self._ending = self._ending or Ending(outcome="unstarted", exit_code=0, reason=why.reason)
        elif self._resizing is not None:
            action, self._resizing = self._resizing, None
            for task in task_set.tasks:
                del self._tasks[task.rank]
            self._book.write_gang()
            self._book.answer(action, why)
        else:
            self._fail(task_set.tasks[0], f"exit 127: {why.reason}")

    def _settle_resize(self) -> None:
        leaving = [task for task in self._tasks.values() if task.leaving]
        if self._resizing is None or any(task.alive or task.is_finishing for task in leaving):
            return
        for task in leaving:
            task.clear()
            del self._tasks[task.rank]
        joining, self._joining = self._joining, []
        if joining:
            self._muster_tasks(joining)
        elif self._muster is None:
            self._book.write_gang()
            action, self._resizing = self._resizing, None
            self._book.answer(action)

    def _settle_ended(self, task: Task) -> None:
        if self.order["service"] and task.restarts < RESTARTS_MAX:
            delay_ms = min(RESTART_FIRST_MS << task.restarts, RESTART_MAX_MS)
            task.timer = self.loop.after(delay_ms, partial(self._restart, task))
            task.say(f"{task.report()}; it is started again in {delay_ms / 1000:g} s")
            self._book.put_down()
        elif self.order["service"] or task.ended != "exit 0":
            self._fail(task, task.report())

    def _restart(self, task: Task) -> None:
        if self._ending is not None:
            return
        if self._muster is not None:
            task.timer = self.loop.after(RESTART_FIRST_MS, partial(self._restart, task))
            return
        task.timer = None
        task.restarts += 1
        self._launch([task])
        self.loop.after(STEADY_MS, partial(self._forgive, task, task.pid))

    def _forgive(self, task: Task, pid: int) -> None:
        if task.alive and task.pid == pid:
            task.restarts = 0

    def _restart_sick(self, task: Task) -> None:
        task.why_killed = "probe"
        self._ask_to_leave(task)

    def _ask_to_leave(self, task: Task) -> None:
        task.ask_to_leave()
        self.loop.after(self.order["grace_ms"], partial(self._kill, task, task.pid))

    def _kill(self, task: Task, pid: int) -> None:
        if task.pid == pid and (task.alive or task.is_finishing):
            task.kill(descendants(os.getpid()))

    def _fail(self, task: Task, reason: str) -> None:
        """One that failed ends all: the others get notice."""
        if self._ending is None:
            self._ending = Ending(outcome="failed", exit_code=task.exit_code, reason=reason)
            self._end_tasks(self.order["grace_ms"], "failed")

    def _ranks_alive(self) -> list[int]:
        return [task.rank for task in self._tasks.values() if task.alive]

    def _is_awake(self) -> bool:
        return self._book.phase not in FROZEN and not self._rest

    def _is_kept(self) -> bool:
        return len(self._sessions) + len(self._attachments) > 0 or self._book.phase != "running" or not self._is_awake()

    def _end_idle(self) -> None:
        if self._ending is None:
            reason = f"idle: no session and no work for {self.order['idle_ms'] // 1000} s"
            self._ending = Ending(outcome="succeeded", exit_code=0, reason=reason)
            self._end_tasks(self.order["grace_ms"], "idle")

    def _look_home(self, home: tuple[int, int] | None) -> None:
        """Ends the attempt once its folder was deleted, or another has taken its place."""
        if self.folder.identity() == home:
            self.loop.after(HOME_LOOK_MS, partial(self._look_home, home))
            return
        self._homeless = True
        if self._ending is None:
            self._ending = Ending(outcome="lost", exit_code=0, reason="lost: the folder of the attempt was deleted")
        if self._muster is not None:
            self._muster.call_off("the folder of the attempt was deleted")
        self._end_tasks(self.order["grace_ms"], "lost")

    def _end_tasks(self, grace_ms: int, reason: str) -> None:
        """Gives notice to all, and kills after the grace; a second notice can only shorten it."""
        self._rest.end()
        if self._suspension.is_swapped or self._book.phase in MOVING:
            # Without its device memory it can save nothing, however long it is given.
            self._swap.call_off()
            grace_ms = 0
        self._book.phase = "stopping"
        self._book.give_notice(reason, grace_ms)
        self._book.put_down()
        for task in self._tasks.values():
            task.ask_to_leave()
        self._begin_grace(grace_ms)

    def _begin_grace(self, grace_ms: int) -> None:
        timer = self.loop.after(grace_ms, self._end_grace)
        if self._grace is not None and self._grace.at_s < timer.at_s:
            timer.call_off()
        else:
            self._grace = timer

    def _end_grace(self) -> None:
        self._is_grace_over = True
        kill_all()

    def _leaves_some_finishing(self) -> bool:
        """Whether processes of the attempt may go on until the grace is over; kills all others."""
        if self._is_grace_over:
            return False
        if self._grace is None:
            self._begin_grace(self.order["grace_ms"])
        attempt_process = descendants(os.getpid())
        spared = {each.pid for task in self._tasks.values() for each in task.may_finish(attempt_process)}
        kill_these(each for each in attempt_process if each.pid not in spared)
        return bool(spared)

    def _finish(self, ending: Ending) -> None:
        """Ends once not one process is left."""
        self._reap()
        if any_left():
            if self._leaves_some_finishing():
                # Their ends are heard of, and so is the end of the grace.
                return
            kill_all()
            self.loop.after(LOOK_AGAIN_MS, self._reap)
            return
        self._log_clock.look()
        # Said once: a disk that is full has the end put down later than it was.
        ending.setdefault("ended_ms", int(time.time() * 1000))
        for task in self._tasks.values():
            task.clear()
            run_quietly(task.order["remove"])
        self._boundary.close()
        over = self._unstarted or Failure(f"the attempt has ended: {ending['reason']}")
        under_way = [(action, over) for action in (self._starting, self._resizing) if action is not None]
        answers = [*under_way, *((stop, None) for stop in self._stops)]
        if self._homeless:
            self._book.tell_end(answers, ending)
            self.done = True
            return
        stop_listening(self.folder.path)
        self.done = self._book.close(answers, ending)
        if not self.done:
            self.loop.after(WRITE_AGAIN_MS, self._reap)
