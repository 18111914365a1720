"""The snapshotter: has a copy of the process write the State down, while the loop goes on."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Callable

from phalanx.engine.fold.snapshot import dump
from phalanx.engine.state.state import State
from phalanx.errors import PhalanxError
from phalanx.mortal import fork_mortal
from phalanx.server.store import snapshots
from phalanx.server.store.database import open_database

EVERY_RECORDS = 10_000
"""Folding so many records takes half a second, which a restart can afford."""

PATIENCE_S = 300.0
PAUSE = 4
"""The pause after a snapshot, in times of the processor time it took: they are to use a fifth of a core at most."""


class Snapshotter:
    """Takes a snapshot when many records have been made since the last.

    The loop itself has one thread; a backend may have more, which a copy made by `fork` lacks and does not need. Memory
    is shared until either changes it.
    """

    def __init__(
        self, url: str, newest_seq: int, close_in_copy: Callable[[], None], tell: Callable[[str], None]
    ) -> None:
        self._url = url
        self._newest_seq = newest_seq
        self._close_in_copy = close_in_copy
        self._tell = tell
        self._child: int | None = None
        self._began_s = 0.0
        self._rests_until_s = 0.0

    def look_after(self, state: State) -> None:
        """Begins a snapshot if it is time, and takes leave of one that is done. The State must be durable."""
        if self._child is not None:
            self._reap(self._child)
        elif state.seq - self._newest_seq >= EVERY_RECORDS and time.monotonic() >= self._rests_until_s:
            self.begin(state)

    def begin(self, state: State) -> None:
        """Begins a snapshot of the State as it is."""
        self._newest_seq, self._began_s = state.seq, time.monotonic()
        gc.freeze()
        self._child = fork_mortal()
        if self._child == 0:
            os._exit(self._write(state))

    def _reap(self, child: int) -> None:
        done, status, used = os.wait4(child, os.WNOHANG)
        if done:
            self._child = None
            self._rests_until_s = time.monotonic() + PAUSE * (used.ru_utime + used.ru_stime)
            if status:
                self._tell(f"the snapshot at record {self._newest_seq} failed; the next is tried later")
        elif time.monotonic() - self._began_s > PATIENCE_S:
            # A thread of the original may have held a lock when the copy was made, which is never opened there.
            os.kill(child, signal.SIGKILL)

    def _write(self, state: State) -> int:
        """In the copy: nothing of the original's connections is touched, and nothing is tidied up at the end."""
        try:
            self._close_in_copy()
            os.nice(2)
            snapshots.write(open_database(self._url), state, dump(state))
        except (PhalanxError, OSError) as error:
            self._tell(f"no snapshot at record {state.seq}: {error}")
            return 1
        return 0
