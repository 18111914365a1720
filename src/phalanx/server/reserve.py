"""The reserve: space on the disk that is held for the day it is full, so that what runs can still be written down."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

RESERVE_BYTES = 16 << 20


class Reserve:
    """A file that takes up space until that is needed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def hold(self, beside_bytes: int) -> None:
        """Takes up space, where so much would still be free beside it. Without a reserve one goes on as well."""
        with suppress(OSError):
            if self._path.exists() or shutil.disk_usage(self._path.parent).free < RESERVE_BYTES + beside_bytes:
                return
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(handle, 0, RESERVE_BYTES)
            finally:
                os.close(handle)

    def give(self) -> bool:
        """Gives the space up; whether there was any."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True
