"""The pulse of a run: what its loop notes down for metrics and probes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

SILENCE_MAX_S = 90.0
"""A loop that has not come round for so long is stuck: it does so every few seconds, whatever happens."""


@dataclass(slots=True)
class Pulse:
    """What the loop of a run notes down. One thread writes, others read."""

    beat_s: float = field(default_factory=time.monotonic)
    is_ready: bool = False
    leads: bool = False
    turns: int = 0
    turns_s: float = 0.0
    nodes: int = 0

    def beat(self) -> None:
        """The loop has come round."""
        self.beat_s = time.monotonic()

    def turned(self, took_s: float, nodes: int) -> None:
        """A decision was made."""
        self.turns += 1
        self.turns_s += took_s
        self.nodes = nodes

    @property
    def is_alive(self) -> bool:
        """Whether the loop comes round."""
        return time.monotonic() - self.beat_s < SILENCE_MAX_S
