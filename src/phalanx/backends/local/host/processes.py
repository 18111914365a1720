"""Processes as the kernel tells of them: their descent, and whether a number still means the same process."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import NamedTuple

_PPID, _GROUP, _SESSION, _BEGAN = 1, 2, 3, 19
"""Positions in /proc/PID/stat after the name, counted from the state (proc(5), fields 4, 5, 6 and 22)."""


class Process(NamedTuple):
    """One process. `began` is in clock ticks since boot."""

    pid: int
    parent: int
    group: int
    session: int
    state: str
    began: int


def process(pid: int) -> Process | None:
    """A process by its number; None if there is none. A zombie is one."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name may hold blanks and brackets: the fields begin after the last bracket.
    fields = text[text.rindex(b")") + 2 :].split()
    parent, group, session, began = (int(fields[each]) for each in (_PPID, _GROUP, _SESSION, _BEGAN))
    return Process(pid, parent, group, session, fields[0].decode(), began)


def processes() -> list[Process]:
    """All processes there are now."""
    found = (process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [each for each in found if each is not None]


def descendants(pid: int) -> list[Process]:
    """All that descend from a process and live, parents before children. Costs what the family has, not the machine."""
    found: list[Process] = []
    queue = [pid]
    while queue:
        for child in _children(queue.pop()):
            queue.append(child)
            each = process(child)
            if each is not None and each.state != "Z":
                found.append(each)
    return found


def _children(pid: int) -> list[int]:
    """The children of all threads of a process. A kernel that keeps no list of them is asked for every process."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    except (FileNotFoundError, ProcessLookupError):
        if not _keeps_children():
            return [each.pid for each in processes() if each.parent == pid]
    return found


def _keeps_children() -> bool:
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def signal_process(pid: int, number: signal.Signals) -> None:
    """Sends a signal to a process that may be gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def signal_group(pid: int, number: signal.Signals) -> None:
    """Sends a signal to a process group that may be gone."""
    with suppress(ProcessLookupError):
        os.killpg(pid, number)


def arguments(pid: int) -> list[str]:
    """What a process was started with; nothing if it is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return [os.fsdecode(word) for word in file.read().split(b"\0")]
    except OSError:
        return []


def variable(pid: int, name: str) -> str | None:
    """A variable that a process was started with; None if it has none, is gone or is another user's."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            content = file.read()
    except OSError:
        return None
    prefix = f"{name}=".encode()
    for entry in content.split(b"\0"):
        if entry.startswith(prefix):
            return os.fsdecode(entry[len(prefix) :])
    return None
