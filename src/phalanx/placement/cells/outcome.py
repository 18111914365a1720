"""What comes of a request to the cells."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from phalanx.placement.cells.group import Group


class Obstacle(StrEnum):
    """What stands in the way of a request that was not granted."""

    LIMIT = "limit"
    BROKEN = "broken"
    UNSUGGESTED = "unsuggested"
    CAPACITY = "capacity"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a request: a group that has its leaves, one that waits for victims to go, or none and the reason."""

    group: Group | None = None
    victims: tuple[Group, ...] = ()
    lazily_preempted: tuple[Group, ...] = ()
    cancelled: tuple[str, ...] = ()
    reason: str = ""
    obstacle: Obstacle | None = None
