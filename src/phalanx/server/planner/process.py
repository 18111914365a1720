"""The process of the planner: follows the journal, and has a copy of itself answer each question."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import time
from contextlib import suppress

import msgspec

from phalanx.engine.state import State
from phalanx.errors import PhalanxError
from phalanx.server.clock import Clock
from phalanx.server.installed import load_installed_policies
from phalanx.server.log import log_to_stderr
from phalanx.server.loop.wire import json_of
from phalanx.server.mortal import fork_mortal
from phalanx.server.options import options_of
from phalanx.server.planner.answers import answer
from phalanx.server.planner.forecaster import Forecaster
from phalanx.server.planner.future import pass_time
from phalanx.server.planner.questions import Reply, TakeSnapshot, encoded, question_of
from phalanx.server.refusal import Refusal
from phalanx.server.store.database import Database, open_reader
from phalanx.server.store.recovery import catch_up, recover
from phalanx.server.unix import bind_unix
from phalanx.simulate.forecast import Forecast

AT_ONCE = 4
"""Questions pondered at a time: whoever comes next is asked to come again."""

PATIENCE_S = 60
LOOK_S = 1.0
QUESTION_BYTES_MAX = 64 << 20


class Planner:
    """A State that follows the journal, and copies of it at work."""

    def __init__(self, database: Database, url: str) -> None:
        self._database = database
        self._url = url
        self._children: dict[int, float] = {}
        self._forecaster = Forecaster()
        with database.reading() as connection:
            self.state: State = recover(connection, url)
        # As the loop's: a clock that somebody sets ahead is no reason to take jobs for overdue.
        self._clock = Clock(self.state.now)

    def catch_up(self) -> None:
        """Folds in what was journaled meanwhile."""
        with self._database.reading() as connection:
            catch_up(connection, self.state, self._url)

    def receive(self, visitor: socket.socket) -> None:
        """Has a copy of this process answer. The State is one it may use up."""
        self.reap()
        if len(self._children) >= AT_ONCE:
            busy = Refusal("unavailable", "many questions are being pondered: ask again", {"retry_after_s": 1})
            _send(visitor, Reply(busy.status, json_of(busy.body)))
            return
        self.catch_up()
        gc.freeze()
        child = fork_mortal()
        if child == 0:
            os._exit(_answer(visitor, self.state, self._clock.now_ms(), self._forecaster.newest))
        self._children[child] = time.monotonic()

    def look_ahead(self) -> None:
        """Has a forecast made for all who wait, now and then."""
        self._forecaster.look_after(self.state, self._clock.now_ms())

    def reap(self) -> None:
        """Takes leave of copies that are done, and ends those that ponder too long."""
        for child, began_s in list(self._children.items()):
            done, _ = os.waitpid(child, os.WNOHANG)
            if done:
                del self._children[child]
            elif time.monotonic() - began_s > PATIENCE_S:
                os.kill(child, signal.SIGKILL)


def main(line: str) -> int:
    """Runs the planner of a server. `line` holds its options."""
    options = options_of(line)
    log = log_to_stderr("planner")
    # After a crash the loop must be back first: it needs the processor more.
    os.nice(5)
    load_installed_policies(log)
    listener = bind_unix(options.file("run", "planner.sock"))
    listener.settimeout(LOOK_S)
    try:
        planner = Planner(open_reader(options.store_url), options.store_url)
        log.info("ready", extra={"seq": planner.state.seq})
        while True:
            with suppress(TimeoutError):
                visitor, _ = listener.accept()
                with visitor:
                    planner.receive(visitor)
            planner.reap()
            planner.catch_up()
            planner.look_ahead()
    except PhalanxError as error:
        log.error(str(error))
        return 1


def _answer(visitor: socket.socket, state: State, now_ms: int, forecast: Forecast | None) -> int:
    """In the copy: nothing of the original's is touched, and nothing is tidied up at the end."""
    visitor.settimeout(PATIENCE_S)
    try:
        with visitor.makefile("rb") as stream:
            content = stream.read(QUESTION_BYTES_MAX)
        question = question_of(content)
        if not isinstance(question, TakeSnapshot):
            pass_time(state, now_ms)
        _send(visitor, answer(question, state, forecast))
    except (OSError, msgspec.DecodeError, msgspec.ValidationError):
        return 1
    return 0


def _send(visitor: socket.socket, reply: Reply) -> None:
    with suppress(OSError):
        visitor.sendall(encoded(reply))
        visitor.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
