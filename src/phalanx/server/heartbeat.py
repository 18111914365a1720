"""The heartbeat of the loop: when it last moved and at what it is, where every process can see it without asking."""

from __future__ import annotations

import mmap
import os
import struct
import time
from functools import cached_property
from pathlib import Path

FILE = "heartbeat"
NUMBER = struct.Struct("=Q")
SILENT_S = 5.0
"""So long without a beat, and the server is not ready: the loop rests for one second at most."""


class Heartbeat:
    """Two numbers in a file that all processes map: the moment of the last beat, and whether a decision began with it.

    Moments are those of the monotonic clock, in nanoseconds. Only the loop writes; eight aligned bytes are read and
    written in one piece.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    @cached_property
    def _bytes(self) -> mmap.mmap:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(descriptor).st_size < 2 * NUMBER.size:
                os.ftruncate(descriptor, 2 * NUMBER.size)
            return mmap.mmap(descriptor, 2 * NUMBER.size)
        finally:
            os.close(descriptor)

    def beat(self, deciding: bool = False) -> None:
        """Says that the loop moves, and whether it begins to decide."""
        NUMBER.pack_into(self._bytes, NUMBER.size, deciding)
        NUMBER.pack_into(self._bytes, 0, time.monotonic_ns())

    @property
    def trouble(self) -> str:
        """Why the loop takes no work, if it has not moved for long; else empty."""
        (beat_ns,) = NUMBER.unpack_from(self._bytes)
        (deciding,) = NUMBER.unpack_from(self._bytes, NUMBER.size)
        silent_s = (time.monotonic_ns() - beat_ns) / 1e9
        if silent_s < SILENT_S:
            return ""
        if deciding:
            return f"the engine has not come to the end of a decision for {silent_s:.0f} s: changes wait until it has"
        return f"the engine has not moved for {silent_s:.0f} s: it is stopped, or its disk or backend does not answer"
