"""Lives: how far each job of the virtual world is, and where."""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.placement.placement import Placement


@dataclass(slots=True)
class Life:
    """One job in the virtual world: how much of its work is done, and since when it does more at which speed.

    `next` is where it will run once the backend has said that its start or change is done. `version` goes up when the
    moment of its end changes. `use` is the part of its time that is of use, `unsaved` the GPU time since its work was
    last saved and `unsaved_use` what of that was of use, `host_mb` the device memory that it moved to the host when it
    was suspended.
    """

    done_ms: float = 0
    saved_ms: float = 0
    newest: tuple[int, int] = (0, -1)
    placement: Placement | None = None
    next: Placement | None = None
    held_since_ms: int = 0
    since_ms: int = -1
    speed: float = 0.0
    use: float = 1.0
    unsaved: int = 0
    unsaved_use: float = 0.0
    version: int = 0
    leaving: bool = False
    reports_ms: int = 0
    host_mb: int = 0
    broken_ms: int = -1
    starting: str = ""
