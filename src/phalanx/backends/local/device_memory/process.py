"""The process that moves device memory for a shepherd: it holds the driver, which would be heavy in every shepherd, and
may be killed at any moment. It reads one order from its standard input and answers in one line.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from phalanx.backends.local.device_memory.driver import Driver, NoDriverError
from phalanx.backends.local.device_memory.moves import MoveError, move_in, move_out, undo
from phalanx.backends.local.device_memory.usage import host_free_mb, used_by
from phalanx.backends.local.host.processes import descendants

SPARE_MB = 512
"""Memory of the host that is left alone: a machine without any ends processes at random."""


def carry_out(order: dict[str, Any]) -> dict[str, Any]:
    """Does what is ordered: `probe`; `out`, `in`, or `undo` of whatever was begun, of what descends `of` a shepherd but
    for some `spared` sessions.
    """
    try:
        driver = Driver()
        attempt_process = partial(_flock, order.get("of", 0), order.get("spared", []))
        match order["do"]:
            case "out":
                return _out(driver, attempt_process, order.get("over_mb", 0))
            case "in":
                moved = move_in(driver, attempt_process(), order.get("devices", {}))
                return {"ok": True, "pids": moved.pids, "ms": round(moved.seconds * 1000)}
            case "undo":
                faults = undo(driver, attempt_process())
                return {"ok": not faults, "reason": "; ".join(faults)}
        return {"ok": True}
    except (NoDriverError, MoveError) as error:
        return {"ok": False, "reason": str(error)}


def _flock(shepherd: int, spared: list[int]) -> list[int]:
    """The processes whose memory is moved. Looked for at the last moment: a number that was noted may mean another."""
    return [
        each.pid
        for each in descendants(shepherd)
        if each.pid != os.getpid() and each.session not in spared and each.pid not in spared
    ]


def _out(driver: Driver, attempt_process: Callable[[], list[int]], over_mb: int) -> dict[str, Any]:
    """An attempt that has no more than `over_mb` stays where it is."""
    used_mb, free_mb = used_by(attempt_process()), host_free_mb()
    if over_mb and used_mb <= over_mb:
        return {"ok": True, "pids": [], "mb": 0, "ms": 0}
    if used_mb + SPARE_MB > free_mb:
        reason = f"its {used_mb} MB of device memory do not fit into the {free_mb} MB that this machine has free"
        return {"ok": False, "reason": reason}
    moved = move_out(driver, attempt_process)
    return {"ok": True, "pids": moved.pids, "mb": used_mb, "ms": round(moved.seconds * 1000)}


def main() -> None:
    """Reads an order, carries it out, says how that came out."""
    sys.stdout.write(json.dumps(carry_out(json.load(sys.stdin))) + "\n")
    sys.stdout.flush()
