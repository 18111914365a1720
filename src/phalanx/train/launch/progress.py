"""How far a rank is: one small file a rank, which the agent reads. `Checkpointer.step` tells it by itself.

Other loops call `beat(step)` after each step. Where no launcher is, it does nothing.
"""

from __future__ import annotations

import os
import struct
import time
from math import nan
from pathlib import Path

FOLDER = "PHALANX_WORKER_DIR"
BEAT = struct.Struct("<qdd")

_open: tuple[str, int] | None = None


def beat(step: int, busy_s: float = nan) -> None:
    """This rank has done a step; for how long it computed of late, without waiting for other ranks, if it knows."""
    global _open
    folder = os.environ.get(FOLDER)
    if not folder:
        return
    if _open is None or _open[0] != folder:
        try:
            _open = (folder, os.open(os.path.join(folder, "progress"), os.O_WRONLY | os.O_CREAT))
        except OSError:
            return
    os.pwrite(_open[1], BEAT.pack(step, time.time(), busy_s), 0)


def read(folder: Path) -> tuple[int, float, float] | None:
    """The last step that a rank has told, when, and its seconds of computing; None if it never did."""
    try:
        said = (folder / "progress").read_bytes()
    except OSError:
        return None
    if len(said) != BEAT.size:
        return None
    step, at_s, busy_s = BEAT.unpack(said)
    return step, at_s, busy_s
