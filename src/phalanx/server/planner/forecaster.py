"""The forecaster: has a copy of the planner look ahead now and then, and keeps what it saw for all questions."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from phalanx.engine.state.state import State
from phalanx.mortal import fork_mortal
from phalanx.server.planner.future import pass_time
from phalanx.simulate.forecasts.experience import decoded, encoded
from phalanx.simulate.forecasts.forecast import Forecast, Outlook, forecast
from phalanx.simulate.world.costs import NO_COSTS

EVERY_MS = 30_000
"""How old a forecast may become before another is made."""

STILL_MS = 300_000
"""The same, while nothing happens: only that running jobs have run longer by then than was expected."""

RUNS = 9
"""With 9 runs the first and the last bound 80 %."""

TURNS_MAX = 5_000
"""Turns that one run looks ahead: about a second, also for a busy cluster."""

OUTLOOK = Outlook(runs=RUNS, costs=NO_COSTS, turns_max=TURNS_MAX)
_decoder = msgspec.msgpack.Decoder(Forecast)


class Forecaster:
    """Looks ahead in a process of its own, one at a time, and only while a job is pending.

    What the starts of forecast jobs have taught is kept in a file, so that it outlives the process.
    """

    def __init__(self, file: Path) -> None:
        self.newest: Forecast | None = None
        self._file = file
        self._kept = file.read_bytes() if file.is_file() else b""
        self._experience = decoded(self._kept)
        self._child: int | None = None
        self._pipe = -1
        self._received = bytearray()
        self._seq = -1
        self._sent_ms: int | None = None

    def look_after(self, state: State, now_ms: int) -> None:
        """Takes in what a copy has seen, and sends another if it is time."""
        if self._child is not None:
            self._receive(state)
        elif state.in_line and self._is_time(state, now_ms):
            self._send(state, now_ms)

    def _is_time(self, state: State, now_ms: int) -> bool:
        pause_ms = STILL_MS if state.seq == self._seq else EVERY_MS
        return self._sent_ms is None or now_ms - self._sent_ms > pause_ms

    def _send(self, state: State, now_ms: int) -> None:
        self._seq, self._sent_ms = state.seq, now_ms
        self._pipe, theirs = os.pipe()
        os.set_blocking(self._pipe, False)
        self._child = fork_mortal()
        if self._child == 0:
            pass_time(state, now_ms)
            os._exit(_look_ahead(state, theirs))
        os.close(theirs)

    def _receive(self, state: State) -> None:
        assert self._child is not None
        with suppress(BlockingIOError):
            while content := os.read(self._pipe, 1 << 20):
                self._received += content
            os.close(self._pipe)
            os.waitpid(self._child, 0)
            self._child = None
            with suppress(msgspec.DecodeError, msgspec.ValidationError):
                self._tell(state, _decoder.decode(self._received))
            self._received = bytearray()

    def _tell(self, state: State, made: Forecast) -> None:
        """Keeps a forecast for questions, corrected by how those before it came true."""
        self._experience.learn(state)
        self._keep()
        self._experience.remember(made, state.policy.spec)
        self.newest = self._experience.corrected(made, state.policy)

    def _keep(self) -> None:
        """Writes down what has been learned. Where that fails, it is forgotten with the process, and nothing else."""
        content = encoded(self._experience)
        if content == self._kept or not self._experience.misses:
            return
        beside = self._file.with_suffix(".new")
        try:
            beside.write_bytes(content)
            beside.replace(self._file)
            self._kept = content
        except OSError:
            logging.getLogger(__name__).exception("what forecasts have taught is not kept")


def _look_ahead(state: State, pipe: int) -> int:
    """In the copy: the planner itself goes first."""
    os.nice(10)
    try:
        content = msgspec.msgpack.encode(forecast(state, OUTLOOK))
    except Exception:
        logging.getLogger(__name__).exception("no forecast")
        return 1
    with os.fdopen(pipe, "wb") as out:
        out.write(content)
    return 0
