"""The Ray backend: the local one, but for what looks after an attempt: a driver that talks to Ray."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.backends.capability import Offer
from phalanx.backends.local.backend import LocalBackend
from phalanx.backends.local.orders import Yard
from phalanx.backends.ray.offer import ray_offer
from phalanx.backends.ray.supervisors import RaySupervisors
from phalanx.backends.ray.yard import RayYard
from phalanx.protocol.event import Event
from phalanx.workload.job import Job


class RayBackend(LocalBackend):
    """Carries actions out on a Ray cluster. `jobs` gives the job of an id."""

    def __init__(self, yard: Yard, jobs: Callable[[str], Job]) -> None:
        super().__init__(yard, jobs, _keep)

    def events(self, now: int) -> list[Event]:
        """What has happened since the last look, and which nodes have joined."""
        assert isinstance(self._herd, RaySupervisors)
        return [*super().events(now), *self._herd.guests.changes()]

    def offer(self) -> Offer:
        """What Ray can do."""
        return ray_offer()


def _keep(yard: Yard, jobs: Callable[[str], Job], emit: Callable[[list[Event]], None]) -> RaySupervisors:
    assert isinstance(yard, RayYard)
    return RaySupervisors(yard, jobs, emit)
