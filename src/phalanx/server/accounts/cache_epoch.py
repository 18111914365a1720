"""How often accounts have changed, where every process of the server can see it without a request."""

from __future__ import annotations

import mmap
import os
import struct
from functools import cached_property
from pathlib import Path

FILE = "accounts"
NUMBER = struct.Struct("=Q")


class CacheEpoch:
    """A number in a file that all processes map: what was learned under an older one must be looked up again.

    The loop advances it when a change is durable and before it is acknowledged. So a token that was revoked lets no
    caller in once that was acknowledged, whichever worker is asked and however busy the loop is. Only the loop writes;
    eight aligned bytes are read and written in one piece.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    @cached_property
    def _bytes(self) -> mmap.mmap:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(descriptor).st_size < NUMBER.size:
                os.ftruncate(descriptor, NUMBER.size)
            return mmap.mmap(descriptor, NUMBER.size)
        finally:
            os.close(descriptor)

    @property
    def number(self) -> int:
        """Which cache epoch is in force."""
        (number,) = NUMBER.unpack_from(self._bytes)
        return int(number)

    def advance(self) -> None:
        """Has every process look up again what it knows of accounts."""
        NUMBER.pack_into(self._bytes, 0, self.number + 1)
