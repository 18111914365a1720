"""A task set: tasks that begin together or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial

from phalanx.backends.local.shepherd.loop import Loop
from phalanx.backends.local.shepherd.tasks.launch import READY, Stage, failure
from phalanx.backends.local.shepherd.tasks.task import Task


class Failure:
    """Why an action came to nothing, and where."""

    def __init__(self, reason: str, retryable: bool = True, node: str = "") -> None:
        self.reason = reason
        self.retryable = retryable
        self.node = node


class TaskSet:
    """Tasks on their way. `on_ready` is called when all stand at the edge, before any goes over it."""

    def __init__(self, loop: Loop, tasks: Sequence[Task], on_ready: Callable[[], None]) -> None:
        self.tasks = tasks
        self.failure: Failure | None = None
        self._loop = loop
        self._on_ready = on_ready
        self._stage = Stage()
        self._told: dict[int, bytes] = {}
        self._pipes: dict[int, Task] = {}
        self._ready = False
        self._begun = 0

    def begin(self) -> None:
        """Makes the processes."""
        for task in self.tasks:
            try:
                pipe = task.fork(self._stage)
            except OSError as error:
                self._fail(task, f"{error.filename or 'fork'}: {error.strerror}", retryable=True)
                return
            self._pipes[pipe], self._told[pipe] = task, b""
            self._loop.watch(pipe, partial(self._hear, pipe))

    @property
    def over(self) -> bool:
        """Whether all have begun, or none has and none is left."""
        if self.failure is not None:
            return not any(task.alive for task in self.tasks)
        return self._begun == len(self.tasks)

    def call_off(self, reason: str) -> None:
        """Has none of them begin, or ends those that have."""
        if not self.over and self.failure is None:
            self._fail(self.tasks[0], reason, retryable=True)

    def _hear(self, pipe: int) -> None:
        data = os.read(pipe, 4096)
        self._told[pipe] += data
        if not data:
            self._hear_last(pipe)
        elif not self._ready and all(told.startswith(READY) for told in self._told.values()):
            self._go()

    def _go(self) -> None:
        self._ready = True
        try:
            self._on_ready()
        except OSError as error:
            self._fail(self.tasks[0], f"{error.filename}: {error.strerror}", retryable=True)
            return
        self._stage.open(len(self.tasks))

    def _hear_last(self, pipe: int) -> None:
        task = self._pipes.pop(pipe)
        self._loop.forget(pipe)
        os.close(pipe)
        failed = failure(self._told[pipe])
        if failed is None:
            self._begun += 1
        else:
            self._fail(task, *failed)

    def _fail(self, task: Task, reason: str, retryable: bool) -> None:
        self.failure = Failure(f"task {task.rank} on {task.order['node']}: {reason}", retryable, task.order["node"])
        self._stage.close()
        for pipe in self._pipes:
            self._loop.forget(pipe)
            os.close(pipe)
        self._pipes = {}
