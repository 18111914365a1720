"""What may go on after the main process of a task has ended, and for how long.

A shell that started a training dies of the notice before the training has saved, and a trainer that was killed leaves
the process that writes its checkpoint. Both have the grace, and nothing has more. All else is killed at once: what a
task leaves behind by mistake would hold its devices.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterable

from phalanx.backends.local.host.processes import Process, process, signal_process, variable
from phalanx.train.checkpoint import helper

WRITERS: Collection[str] = (helper.WRITER,)
KEEPERS: Collection[str] = (helper.KEEPER,)
NONE: Collection[str] = ()


def noticed(attempt_process: Iterable[Process], group: int) -> list[Process]:
    """Of processes, parents before children, those of a group that was given notice, and all they have brought forth.

    A launcher has its workers in groups of their own, and passes the notice on.
    """
    found: dict[int, Process] = {}
    for each in attempt_process:
        if each.group == group or each.parent in found:
            found[each.pid] = each
    return list(found.values())


def helpers(attempt_process: Iterable[Process], kinds: Collection[str]) -> list[Process]:
    """Of processes, those that say that they are of some kinds of helpers."""
    return [each for each in attempt_process if variable(each.pid, helper.VARIABLE) in kinds]


def lives(each: Process) -> bool:
    """Whether a process of which its number was noted is still there."""
    now = process(each.pid)
    return now is not None and now.began == each.began and now.state != "Z"


def kill_these(remains: Iterable[Process]) -> None:
    """Kills processes that were noted, and none that has got the number of one since."""
    for each in remains:
        if lives(each):
            signal_process(each.pid, signal.SIGKILL)
