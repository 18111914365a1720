"""The state of a device, as maps and series count it: every device is in exactly one."""

from __future__ import annotations

from collections.abc import Container

from phalanx.cluster.cluster import Health
from phalanx.server.view.devices import ALLOCATED, CLAIMED, FREE, RUNNING, SUSPENDED, Device

IDLE, HELD, BUSY, RESERVED, DRAINING, FAILED, ASIDE = range(7)
STATES = ("idle", "allocated", "busy", "reserved", "draining", "failed", "suspended")
STATE_OF_USE = {FREE: IDLE, CLAIMED: RESERVED, ALLOCATED: HELD, RUNNING: BUSY, SUSPENDED: ASIDE}
HEALTHS = ("healthy", "suspect", "draining", "failed", "spare")
"""By the numbers that frames have had from the beginning: what is new comes last."""

WORSE = tuple(health.value for health in Health)

BUSY_BELOW = 0.05
"""A job that measures its GPUs and says less than this has them and does not use them."""


def health_of(node: str, device: Device) -> str:
    """The worse of a node's health and its device's own."""
    return max(node, device.health, key=WORSE.index) if device.health else node


def state_of(node: str, device: Device, idle_jobs: Container[str]) -> int:
    """What a device is doing, on a node of some health. One that runs a job does so also while its node is drained; one
    that is free there is not to be had.
    """
    health = health_of(node, device)
    if health == Health.FAILED:
        return FAILED
    if health == Health.SPARE and device.use == FREE:
        return RESERVED
    if health != Health.HEALTHY and device.use in (FREE, CLAIMED):
        return DRAINING
    if device.use == RUNNING and all(job in idle_jobs for job in device.jobs):
        return HELD
    return STATE_OF_USE[device.use]
