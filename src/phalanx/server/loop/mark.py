"""The mark: how far the store has come, kept beside it, so that a store that was restored from a backup is known."""

from __future__ import annotations

import mmap
import os
import struct
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from phalanx.server.store.database import FullStoreError

FILE = "mark"
_LAYOUT = struct.Struct("=8s4Q")
_NUMBERS = struct.Struct("=4Q")


class Reached(NamedTuple):
    """How far a store has come: records, the leader's term, the id of the next job, changes of accounts."""

    records: int = 0
    term: int = 0
    next_id: int = 1
    account_changes: int = 0

    def is_behind(self, other: Reached) -> bool:
        """Whether any of it is less than another store had."""
        return any(mine < theirs for mine, theirs in zip(self, other, strict=True))


class Mark:
    """A mapped file: what is put there survives the end of the process, at the cost of a few stores to memory.

    It is put after the transaction that it tells of, so that it is never ahead of the store it belongs to. Only the
    loop writes.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    def read(self) -> tuple[str, Reached] | None:
        """The incarnation and how far it came; None if there is no mark."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return None
        if len(content) != _LAYOUT.size:
            return None
        incarnation, *numbers = _LAYOUT.unpack(content)
        return incarnation.hex(), Reached(*numbers)

    def begin(self, incarnation: str, reached: Reached) -> None:
        """Puts down a start, perhaps of another incarnation, durably. It needs no room where there is a mark."""
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(handle, _LAYOUT.pack(bytes.fromhex(incarnation), *reached), 0)
            os.ftruncate(handle, _LAYOUT.size)
            os.fsync(handle)
        except OSError as error:
            raise FullStoreError(f"{self._path}: {error.strerror}") from error
        finally:
            os.close(handle)

    def put(self, reached: Reached) -> None:
        """Puts down how far the present incarnation has come."""
        _NUMBERS.pack_into(self._bytes, _LAYOUT.size - _NUMBERS.size, *reached)

    def flush(self) -> None:
        """Has it on the disk."""
        self._bytes.flush()

    @cached_property
    def _bytes(self) -> mmap.mmap:
        handle = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            return mmap.mmap(handle, _LAYOUT.size)
        finally:
            os.close(handle)
