"""Clients that are attached to the terminals of an attempt's tasks."""

from __future__ import annotations

import os
from collections.abc import Mapping

from phalanx.backends.local.shepherd.tasks.task import Task
from phalanx.backends.local.wire import Message, Wire

ATTACHED_MAX = 16
"""How many are attached to one task at once: each takes descriptors of the shepherd's."""


class Attachments:
    """All of them, by their wires."""

    def __init__(self, tasks: Mapping[int, Task]) -> None:
        self._tasks = tasks

    def __len__(self) -> int:
        return sum(len(task.terminal) for task in self._tasks.values() if task.terminal is not None)

    def open(self, message: Message, wire: Wire) -> None:
        """Attaches a client to a task by the file that came along; says why if it cannot be."""
        files, wire.files = wire.files, []
        task = self._tasks.get(message["rank"])
        refused = self._obstacle(message["rank"], task, files)
        if task is not None and task.terminal is not None and not refused:
            task.terminal.attach(wire, os.dup(files[0]), message["rows"], message["columns"])
        for handle in files:
            os.close(handle)
        if refused:
            wire.send({"error": refused})

    def _obstacle(self, rank: int, task: Task | None, files: list[int]) -> str:
        if task is None or not task.alive:
            return f"task {rank} does not run"
        if task.terminal is None:
            return (
                f"task {rank} has no terminal: jobs of kind interactive have one, outside of containers; "
                "`phalanx exec` runs a shell beside it, and `phalanx logs -f` shows what it prints"
            )
        if not files:
            return f"no client can be attached to task {rank} now: too many open files"
        return f"{ATTACHED_MAX} are attached to task {rank} already" if len(task.terminal) >= ATTACHED_MAX else ""

    def resize(self, message: Message) -> None:
        """Sets the size of the terminal of a task."""
        task = self._tasks.get(message["rank"])
        if task is not None and task.terminal is not None:
            task.terminal.resize(message["rows"], message["columns"])

    def hang_up(self, wire: Wire) -> None:
        """Lets go of a client that has gone."""
        for task in self._tasks.values():
            if task.terminal is not None:
                task.terminal.detach(wire)
