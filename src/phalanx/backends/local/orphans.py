"""Orphans: processes of an attempt whose shepherd is gone. They are ended: their end would not be heard of."""

from __future__ import annotations

import os
import select
import signal
import time

from phalanx.backends.local.folder import AttemptFolder
from phalanx.backends.local.host.cgroup import Pen, pen_name
from phalanx.backends.local.host.processes import arguments, process, processes, signal_process, variable

PATIENCE_S = 10.0
"""What the kernel may take to end a process that was killed; one in a broken driver call may take forever."""


def end_orphans(folder: AttemptFolder) -> bool:
    """Kills every process of an attempt and waits for its end; False if some do not die."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        left = _left_of(folder)
        if not left:
            for pen in _pens(folder):
                pen.remove()
            return True
        if time.monotonic() > deadline_s:
            return False
        for pid in left:
            _kill(pid, deadline_s)


def kill_shepherd(folder: AttemptFolder) -> None:
    """Kills what looks after an attempt and waits for its end."""
    deadline_s = time.monotonic() + PATIENCE_S
    for each in processes():
        # A task may name its folder, too; only tasks have the variable.
        is_task = variable(each.pid, "PHALANX_NOTICE_FILE") is not None
        if each.state != "Z" and folder.path in arguments(each.pid) and not is_task:
            _kill(each.pid, deadline_s)


def _left_of(folder: AttemptFolder) -> list[int]:
    """Pids of an attempt: those put down, unless the number means another process by now, those in its control groups,
    and those marked as its. A program may write over its marks, as those that change their titles do.
    """
    state = folder.state()
    known = {task["pid"]: task["began"] for task in state["tasks"]} if state is not None else {}
    penned = {pid for pen in _pens(folder) for pid in pen.pids()}
    found = []
    for each in processes():
        if each.state != "Z" and (
            known.get(each.pid) == each.began
            or each.pid in penned
            or variable(each.pid, "PHALANX_NOTICE_FILE") == folder.notice_path
        ):
            found.append(each.pid)
    return found


def _pens(folder: AttemptFolder) -> list[Pen]:
    """The control groups of an attempt's tasks."""
    order, state = folder.order(), folder.state()
    if order is None:
        return []
    begun = [task["rank"] for task in state["tasks"]] if state is not None else []
    ranks = dict.fromkeys([*(task["rank"] for task in order["tasks"]), *begun])
    return [Pen(order["pens"], pen_name(folder.path, order["job"], order["attempt"], rank)) for rank in ranks]


def _kill(pid: int, deadline_s: float) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if process(pid) is not None:
            signal_process(pid, signal.SIGKILL)
            select.select([handle], [], [], max(deadline_s - time.monotonic(), 0))
    finally:
        os.close(handle)
