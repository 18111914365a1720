"""How fast device memory was moved here so far: measured at every move, and kept for the next start of a server."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from phalanx.backends.local.folder import write_durably
from phalanx.protocol.event import SuspendRates

FILE = "suspend-rates.json"

FIRST = SuspendRates(out_mb_per_s=2_000, in_mb_per_s=6_000)
"""Until something is measured: one H200 with driver 580 took 5.1 s for 10 GB to the host and 1.7 s back."""

NEW_SHARE = 0.3
"""How much the newest measurement counts against those before."""

LEAST_MB = 64
"""Less than this tells more of the call than of the memory."""


class Rates:
    """The rates in a file of the backend's folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    def read(self) -> SuspendRates:
        """What is known."""
        try:
            kept = json.loads(self._path.read_text())
            return SuspendRates(max(1, int(kept["out_mb_per_s"])), max(1, int(kept["in_mb_per_s"])))
        except (OSError, ValueError, KeyError, TypeError):
            return FIRST

    def learn(self, way: str, moved_mb: int, took_ms: int) -> None:
        """Takes note of a move `out` or `in`."""
        if moved_mb < LEAST_MB or took_ms <= 0:
            return
        known = self.read()
        rates = {"out": known.out_mb_per_s, "in": known.in_mb_per_s}
        rates[way] = max(1, round((1 - NEW_SHARE) * rates[way] + NEW_SHARE * moved_mb * 1000 / took_ms))
        with suppress(OSError):
            os.makedirs(self._path.parent, exist_ok=True)
            write_durably(str(self._path), {"out_mb_per_s": rates["out"], "in_mb_per_s": rates["in"]})
