"""Processes in a container, as their shepherd sees them from outside.

A container engine passes a signal on to the first process of the container alone, and the kernel keeps from that one
every signal that it has no handler for. A shell that starts a training there hears nothing, and passes nothing on.
"""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.backends.local.host.processes import Process


def beside_the_first(attempt_process: Iterable[Process]) -> list[Process]:
    """Of processes, those in the process group of the first one of a container, without that one."""
    processes = list(attempt_process)
    first = {each.pid: each.group for each in processes if number_inside(each.pid) == 1}
    return [each for each in processes if each.group in first.values() and each.pid not in first]


def number_inside(pid: int) -> int:
    """The number that a process has where it lives; its own where that is here, 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/status") as file:
            line = next(line for line in file if line.startswith("NSpid:"))
    except (OSError, StopIteration):
        return 0
    return int(line.split()[-1])
