"""A day of figures for a rehearsal: the chart of a server that has just started would grow while a page is measured.

`python -m phalanx.server.figures.rehearsed FOLDER GPUS` writes them into the folder of a server to come.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from phalanx.server.figures.sample import CLUSTER_NAMES
from phalanx.server.figures.series import FILE, SeriesWriter

DAY_MS = 86_400_000
STEP_MS = 120_000


def write_day(data: Path, gpus: int, now_ms: int) -> None:
    """Writes what a server would have that ran for a day."""
    data.mkdir(mode=0o700)
    writer = SeriesWriter(data / FILE)
    for at_ms in range(now_ms - DAY_MS, now_ms, STEP_MS):
        writer.add([("cluster", _figures(gpus, at_ms))], at_ms)
    writer.close()


def _figures(gpus: int, at_ms: int) -> dict[str, float]:
    """Every figure goes up and down within the hour, each in its own place."""
    steps = at_ms // STEP_MS
    return {name: float((steps * (place + 7)) % gpus) for place, name in enumerate(CLUSTER_NAMES)}


if __name__ == "__main__":
    write_day(Path(sys.argv[1]), int(sys.argv[2]), time.time_ns() // 1_000_000)
