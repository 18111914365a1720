"""Moved memory: what it costs a job in virtual time that part of what it needs on a device is on the host.

A step needs all of it once: what is not on the device is copied there and back. That every step does is ours, and so is
that copying and computing take turns; a job that computes little at a time waits for its copies the less.
"""

from __future__ import annotations

from phalanx.cluster.device import Portion
from phalanx.placement.sharing import Interference
from phalanx.simulate.world.training import step_time_ms
from phalanx.workload.footprint import footprint_of
from phalanx.workload.job import Job

MB_PER_GB = 1024
SECOND_MS = 1000.0


def speed_with_moved(speed: float, job: Job, portion: Portion, interference: Interference) -> float:
    """The speed of a job that would run at such a speed with all its memory on the device."""
    footprint = footprint_of(job)
    if footprint is None:
        return speed
    moved_gb = max(footprint.high_gb - portion.lent_mb / MB_PER_GB, 0.0)
    copying_ms = 2 * moved_gb / interference.host_gb_per_s * SECOND_MS
    return speed / (1.0 + speed * copying_ms / step_time_ms(job))
