"""Lending: opportunistic jobs use what guaranteed ones hold of a device's memory and do not need now (antman).

What a guaranteed job needs is the most that it has reported of late, or what it asked for until it has reported. What
is left of the device, but for a little in which it may grow, is lent to those beside it; the rest of what they need is
in the memory of the host. When it needs more they have less at once. Where no job is guaranteed they have it all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from phalanx.cluster.device import Portion
from phalanx.policy.policy import Memory
from phalanx.policy.view import Moment
from phalanx.protocol.event import AttemptEnded, Event, JobCancelled, Progress
from phalanx.workload.footprint import footprint_of

REPORTS_KEPT = 4
"""So many reports on end must tell of less before less is taken to be needed: what wavers is not lent."""

MB_PER_GB = 1024
PERCENT = 100


@dataclass(frozen=True, slots=True)
class Lending:
    """`headroom` is how much of a device, in percent, guaranteed jobs have left to grow into."""

    headroom: int

    def lent_mb(self, memory: Mapping[str, Any], job: str, at: Moment) -> int:
        """What an opportunistic job may use of each of its devices: the least that any of them has for it."""
        # While it is promoted it holds some devices already: there it needs nothing lent.
        lending = (device for device in at.sharing(job) if device[job].revocable)
        return min((self._on(memory, job, device, at) for device in lending), default=0)

    def _on(self, memory: Mapping[str, Any], job: str, device: Mapping[str, Portion], at: Moment) -> int:
        beside = {name: needed_mb(memory, name, at) for name, each in device.items() if each.revocable}
        guaranteed = {name: each.memory_mb for name, each in device.items() if not each.revocable}
        if not guaranteed:
            # Each would fit alone: an equal part of what each needs fits with all the rest.
            return beside[job] // len(beside)
        left_mb = sum(
            held_mb * (PERCENT - self.headroom) // PERCENT - used_mb(memory, name, held_mb, at)
            for name, held_mb in guaranteed.items()
        )
        # In whole GB, so that what a job has may waver a little and nothing moves.
        return divided(max(left_mb // MB_PER_GB * MB_PER_GB, 0), beside)[job]


def divided(left_mb: int, needed: Mapping[str, int]) -> dict[str, int]:
    """What is left in equal parts; a job that needs less leaves the rest to the other jobs."""
    parts: dict[str, int] = {}
    for name in sorted(needed, key=lambda name: (needed[name], name)):
        parts[name] = min(needed[name], left_mb // (len(needed) - len(parts)))
        left_mb -= parts[name]
    return parts


def used_mb(memory: Mapping[str, Any], job: str, held_mb: int, at: Moment) -> int:
    """What a guaranteed job uses of what it holds: all of it, if that is unknown."""
    reports: tuple[int, ...] = memory.get("used_mb", {}).get(job, ())
    return max(reports, default=0) or _asked_mb(job, at) or held_mb


def needed_mb(memory: Mapping[str, Any], job: str, at: Moment) -> int:
    """What an opportunistic job needs on each of its devices, or on the host instead; 0 if that is unknown."""
    return _asked_mb(job, at) or max(memory.get("used_mb", {}).get(job, ()), default=0)


def observe_memory(memory: Memory, event: Event) -> None:
    """Takes note of what jobs report of their memory, until they have ended."""
    match event:
        case Progress() if event.memory_gb > 0:
            used = memory.setdefault("used_mb", {})
            reports = (*used.get(event.job, ()), int(event.memory_gb * MB_PER_GB))
            used[event.job] = reports[-REPORTS_KEPT:]
        case JobCancelled() | AttemptEnded():
            memory.get("used_mb", {}).pop(event.job, None)


def _asked_mb(job: str, at: Moment) -> int:
    footprint = footprint_of(at.job(job).job)
    return int(footprint.high_gb * MB_PER_GB) if footprint is not None else 0
