"""Keeping the past at hand: as the journal grows, copies of the planner keep States along it, one copy at a time.

So a question about a moment never folds more than a stretch or two, also the first one, and also of a journal that is
older than this server's program.
"""

from __future__ import annotations

import gc
import logging
import os
import time

from phalanx.engine.state.state import State
from phalanx.errors import PhalanxError
from phalanx.mortal import fork_mortal
from phalanx.server.options import Options
from phalanx.server.past.moments import STATES, Moments, keep_missing
from phalanx.server.store.database import Database, database_file, open_reader
from phalanx.server.store.journal import first_seq

RETRY_S = 300.0
"""After so long it is tried again where a State could not be written."""


class PastKeeper:
    """Sees to it that of each stretch of the journal a State is kept."""

    def __init__(self, database: Database, options: Options) -> None:
        self._options = options
        self._is_shown = database_file(options.store_url) is not None
        self._moments = Moments(options.file(STATES))
        self._moments.tidy()
        with database.reading() as connection:
            self._first = first_seq(connection)
        self._child: int | None = None
        self._begun = -1
        self._not_before_s = 0.0

    def look_after(self, state: State) -> None:
        """Takes leave of a copy that is done, and sends another where a State is missing."""
        if not self._is_shown or not self._is_free():
            return
        missing = self._moments.missing(self._first, state.seq)
        if missing is None or time.monotonic() < self._not_before_s:
            return
        self._begun = missing
        self._child = fork_mortal()
        if self._child == 0:
            os._exit(_keep(state, missing, self._moments, self._options))

    def _is_free(self) -> bool:
        """Whether no copy is at work."""
        if self._child is None:
            return True
        if not os.waitpid(self._child, os.WNOHANG)[0]:
            return False
        self._child = None
        self._moments.look()
        if self._moments.missing(self._first, self._begun) == self._begun:
            self._not_before_s = time.monotonic() + RETRY_S
        return True


def _keep(state: State, missing: int, moments: Moments, options: Options) -> int:
    """In the copy: it may take long, and all else goes first."""
    os.nice(19)
    gc.disable()
    if state.seq - missing < moments.stretch:
        moments.keep(state)
        return 0
    try:
        keep_missing(open_reader(options.store_url), moments, state.seq)
    except PhalanxError:
        logging.getLogger(__name__).exception("the past is not kept")
        return 1
    return 0
