"""Throttling: opportunistic jobs have as much of a device as leaves guaranteed ones their own step time (antman).

A guaranteed job's own step time is what it reports while no opportunistic job runs on its devices. One that never ran
alone is taken to have it while those beside it have the least. From there they are given more, as long as its steps
take no longer than they may, and less when they do; between what did harm and what did not the middle is tried. Where
even the least does harm, they are suspended for a while.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from phalanx.cluster.device import FULL_PERMILLE, Portion
from phalanx.policy.company import companions, observe_steps, step_ms
from phalanx.policy.policy import Memory
from phalanx.policy.view import Moment
from phalanx.protocol.event import AttemptEnded, Event, JobCancelled

FIRST_PERMILLE = 50
"""What opportunistic jobs have of a device at first: its idle moments."""

LEAST_PERMILLE = 10
CLOSE_PERMILLE = 25
"""So near to what does harm no more is looked for."""

PERCENT = 100

Devices = Sequence[Mapping[str, Portion]]
"""The jobs that run on each device of a job, with what each has there."""


class Level(NamedTuple):
    """What each of those beside a guaranteed job may have, the most that did no harm, and the least that did."""

    beside: tuple[str, ...]
    permille: int = FIRST_PERMILLE
    fine: int = 0
    harmful: int = FULL_PERMILLE + 1
    since_ms: int = 0


@dataclass(frozen=True, slots=True)
class Throttle:
    """`tolerance` is by how many percent a guaranteed job's steps may take longer; `interval_ms` is how long they are
    measured before that is judged, and after `retry_ms` more is tried again.
    """

    tolerance: int
    interval_ms: int
    retry_ms: int

    def control(self, memory: Memory, job: str, at: Moment) -> tuple[str, ...]:
        """Works out what the jobs beside a guaranteed job may have, by what it has reported; and which they are."""
        devices = at.sharing(job)
        levels, own = memory.setdefault("levels", {}), memory.setdefault("own_ms", {})
        level: Level | None = levels.get(job)
        beside = opportunistic_on(devices, level, at)
        measured_ms = step_ms(memory, job, companions(job, devices), at.now, self.interval_ms)
        alone = not beside or (level is not None and not level.permille)
        if measured_ms is not None and (alone or job not in own):
            own[job] = measured_ms
        if not beside:
            levels.pop(job, None)
        elif level is None or level.beside != beside:
            levels[job] = Level(beside, since_ms=at.now)
        elif measured_ms is not None:
            held = _held_permille(devices, beside)
            if all(has == allowed(memory, at.sharing(each)) for has, each in zip(held, beside, strict=True)):
                harmed = measured_ms * PERCENT > own[job] * (PERCENT + self.tolerance)
                levels[job] = self._next(level, max(held), harmed, at.now)
        return beside

    def _next(self, level: Level, held: int, harmed: bool, now: int) -> Level:
        """What is tried next. Where nothing is, a little more is tried after a while."""
        if harmed:
            fine = level.fine if level.fine < held else 0
            less = fine if fine and held - fine <= CLOSE_PERMILLE else (fine + held) // 2
            return Level(level.beside, less if less >= LEAST_PERMILLE else 0, fine, held, now)
        if held < level.permille or held == FULL_PERMILLE:
            return level._replace(fine=held)
        if level.harmful - held > CLOSE_PERMILLE:
            more = min(2 * held, (held + level.harmful) // 2, FULL_PERMILLE)
            return Level(level.beside, more, held, level.harmful, now)
        if now - level.since_ms < self.retry_ms:
            return level._replace(fine=held)
        more = min(held + max(held // 4, LEAST_PERMILLE), FULL_PERMILLE)
        return Level(level.beside, more, held, since_ms=now)


def observe_levels(memory: Memory, event: Event, now: int) -> None:
    """Takes note of reports, and forgets jobs that have ended."""
    observe_steps(memory, event, now)
    if isinstance(event, JobCancelled | AttemptEnded):
        for known in ("levels", "own_ms"):
            memory.get(known, {}).pop(event.job, None)


def allowed(memory: Mapping[str, Any], devices: Devices) -> int:
    """What an opportunistic job on these devices may have: the least that any guaranteed job there leaves it."""
    levels: Mapping[str, Level] = memory.get("levels", {})
    guaranteed = {name: None for device in devices for name, portion in device.items() if not portion.revocable}
    left = (levels[name].permille if name in levels else FIRST_PERMILLE for name in guaranteed)
    return min(left, default=FULL_PERMILLE)


def opportunistic_on(devices: Devices, level: Level | None, at: Moment) -> tuple[str, ...]:
    """The jobs with a revocable share of the devices of a guaranteed job; those that are suspended for it, too."""
    running = (name for device in devices for name, portion in device.items() if portion.revocable)
    resting = level.beside if level is not None and not level.permille else ()
    return tuple(sorted(dict.fromkeys((*running, *(name for name in resting if at.job(name).has_devices)))))


def _held_permille(devices: Devices, beside: tuple[str, ...]) -> list[int]:
    """What each of those beside a job has: nothing, if it is suspended."""
    running = {name: portion for device in devices for name, portion in device.items()}
    return [running[name].compute_permille if name in running else 0 for name in beside]
