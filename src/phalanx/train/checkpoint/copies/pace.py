"""When the network is training's own: copies of snapshots travel in the gaps."""

from __future__ import annotations

import time

from phalanx.train.checkpoint.host.segment import Segment

LOOK_AGAIN_S = 0.001


class Pace:
    """One byte of shared memory: the trainer says when gradients travel, the sender of copies waits meanwhile."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment

    @property
    def is_busy(self) -> bool:
        return self.segment.view[0] != 0

    def take(self) -> None:
        """Gradients begin to travel."""
        self.segment.view[0] = 1

    def yield_(self) -> None:
        """The network is idle until further notice."""
        self.segment.view[0] = 0

    def wait(self, until_s: float) -> None:
        """Waits for a gap, but not longer than to a moment: a copy that comes too late protects nothing."""
        while self.is_busy and time.monotonic() < until_s:
            time.sleep(LOOK_AGAIN_S)
