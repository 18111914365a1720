"""Moving a gang's device memory: all of its processes, or none.

All are locked before any is checkpointed: one that still ran would wait for the rest, or they for it, inside a
collective operation that never ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from phalanx.backends.local.device_memory.driver import OUT_OF_MEMORY, Driver, DriverError, ProcessState

LOCK_TIMEOUT_MS = 10_000
"""Longer than kernels take. In a collective operation with a process that is not locked it would be for ever."""

ROOM_PATIENCE_S = 15.0
"""How long the attempts that had the devices before may take to leave them."""

BETWEEN_TRIES_S = 0.2

LOOKS_MAX = 10
"""How often it is looked for processes that have come to use CUDA meanwhile: they would keep what they take."""


class MoveError(Exception):
    """Device memory could not be moved. What was locked goes on, unless the words say otherwise."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Processes whose memory was moved, and the seconds it took."""

    pids: tuple[int, ...]
    seconds: float


def move_out(driver: Driver, attempt_process: Callable[[], Iterable[int]]) -> Moved:
    """Frees the devices of all processes of a flock that use CUDA, or leaves all running."""
    began_s = time.monotonic()
    moved: list[int] = []
    try:
        for _ in range(LOOKS_MAX):
            using = [pid for pid in attempt_process() if driver.state(pid) is ProcessState.RUNNING]
            if not using:
                return Moved(tuple(moved), time.monotonic() - began_s)
            moved += using
            _each(using, lambda pid: driver.lock(pid, LOCK_TIMEOUT_MS))
            _each(using, driver.checkpoint)
        reason = "more and more of its processes come to use its devices"
    except DriverError as error:
        reason = str(error)
    raise MoveError("; ".join([reason, *undo(driver, moved)]))


def move_in(driver: Driver, pids: Iterable[int], devices: Mapping[str, str]) -> Moved:
    """Gives processes device memory again, and lets them go on. If any cannot, all are of no use any more."""
    began_s = time.monotonic()
    moved = [pid for pid in pids if driver.state(pid) is ProcessState.CHECKPOINTED]
    try:
        _each(moved, lambda pid: _restore(driver, pid, devices))
        _each(moved, driver.unlock)
    except DriverError as error:
        raise MoveError(str(error)) from error
    return Moved(tuple(moved), time.monotonic() - began_s)


def undo(driver: Driver, pids: Iterable[int]) -> list[str]:
    """Lets all processes go on that were locked or checkpointed; what of that failed, in words."""
    faults = []
    for pid in pids:
        try:
            if driver.state(pid) is ProcessState.CHECKPOINTED:
                driver.restore(pid, {})
            if driver.state(pid) is ProcessState.LOCKED:
                driver.unlock(pid)
        except DriverError as error:
            faults.append(f"and it does not go on: {error}")
    return faults


def _restore(driver: Driver, pid: int, devices: Mapping[str, str]) -> None:
    deadline_s = time.monotonic() + ROOM_PATIENCE_S
    while True:
        try:
            driver.restore(pid, devices)
        except DriverError as error:
            if error.code != OUT_OF_MEMORY or time.monotonic() > deadline_s:
                raise
            time.sleep(BETWEEN_TRIES_S)
        else:
            return


def _each(pids: Sequence[int], work: Callable[[int], None]) -> None:
    """Does something to all at the same time; waits for all, and raises what the first raised."""
    if not pids:
        return
    with ThreadPoolExecutor(len(pids)) as pool:
        outcomes = [pool.submit(work, pid) for pid in pids]
    for outcome in outcomes:
        outcome.result()
