"""The process of the planner: follows the journal, and has a copy of itself answer each question."""

from __future__ import annotations

import gc
import os
import selectors
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from phalanx.engine.state.state import State
from phalanx.errors import PhalanxError
from phalanx.mortal import fork_mortal
from phalanx.server.bundle import FORECASTS
from phalanx.server.clock import Clock, Still
from phalanx.server.figures.keeper import Keeper
from phalanx.server.installed import load_installed_policies
from phalanx.server.log import log_to_stderr
from phalanx.server.loop.wire import json_of
from phalanx.server.options import Options, options_of
from phalanx.server.planner.answers import answer
from phalanx.server.planner.forecaster import Forecaster
from phalanx.server.planner.future import pass_time
from phalanx.server.planner.past_answers import answer_of_past
from phalanx.server.planner.past_keeper import PastKeeper
from phalanx.server.planner.places import Places
from phalanx.server.planner.questions import Asked, HideValues, Reply, TakeSnapshot, asked_of, encoded, question_of
from phalanx.server.refusal import Refusal
from phalanx.server.store.database import Database, open_reader
from phalanx.server.store.recovery import catch_up, recover
from phalanx.server.unix import bind_unix
from phalanx.simulate.forecasts.forecast import Forecast

CHEAP_PLACES, CHEAP_OF_ONE = 4, 2
"""Questions that are soon answered, such as `why`: how many at a time, and how many of one user."""

DEAR_PLACES, DEAR_OF_ONE = 3, 2
"""The same of those that ponder a decision or a future, such as `plan`. They cannot take a place of the former."""

DEAR_NICE = 5
"""How much further back those stand for the processor."""

PATIENCE_S = 60
ARRIVE_S = 10
"""How long a question may take to arrive."""

LOOK_S = 1.0
QUESTION_BYTES_MAX = 1 << 30
"""The largest question is a snapshot, which only the server itself asks about."""

READ_BYTES = 1 << 20

BUSY = Refusal(
    "rate_limited", "many questions of yours are being pondered: ask one after another", {"retry_after_s": 1}
)
TOO_LONG = Refusal("unavailable", f"the answer takes longer than {PATIENCE_S} s: ask about less at a time")


@dataclass(slots=True, eq=False)
class Visitor:
    """A connection that brings one question, and waits for its answer."""

    socket: socket.socket
    since_s: float
    received: bytearray = field(default_factory=bytearray)
    asked: Asked | None = None


class Planner:
    """A State that follows the journal, and copies of it at work. Nothing here waits for a visitor."""

    def __init__(
        self,
        database: Database,
        listener: socket.socket,
        keeper: Keeper,
        forecaster: Forecaster,
        options: Options,
    ) -> None:
        self._options = options
        self._database = database
        self._keeper = keeper
        self._forecaster = forecaster
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._arriving: set[Visitor] = set()
        self._at_work: dict[int, Visitor] = {}
        self._places: dict[bool, Places[Visitor]] = {
            True: Places(CHEAP_PLACES, CHEAP_OF_ONE),
            False: Places(DEAR_PLACES, DEAR_OF_ONE),
        }
        self._looked_s = 0.0
        with database.reading() as connection:
            self.state: State = recover(connection, database.url)
            keeper.recall(connection, self.state)
        self._past_keeper = PastKeeper(database, options)
        # As the loop's: a clock that is set ahead is no reason to take jobs for overdue.
        self._clock = Still(self.state.now) if options.shown else Clock(self.state.now)

    def turn(self) -> None:
        """Takes in what arrives, has copies answer as far as there are places, and looks ahead now and then."""
        for key, _ in self._selector.select(LOOK_S):
            if key.fileobj is self._listener:
                self._welcome()
            elif isinstance(key.data, Visitor):
                self._read(key.data)
        self._send_late_away()
        self._reap()
        self._begin()
        if time.monotonic() - self._looked_s > LOOK_S:
            self._looked_s = time.monotonic()
            self._catch_up()
            self._forecaster.look_after(self.state, self._clock.now_ms())
            self._keeper.look_after(self.state, self._clock.now_ms())
            self._past_keeper.look_after(self.state)

    def _welcome(self) -> None:
        connection, _ = self._listener.accept()
        connection.setblocking(False)
        visitor = Visitor(connection, time.monotonic())
        self._arriving.add(visitor)
        self._selector.register(connection, selectors.EVENT_READ, visitor)

    def _read(self, visitor: Visitor) -> None:
        """Takes in a piece of a question. The end of it is where the visitor says no more."""
        try:
            content = visitor.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self._part(visitor)
            return
        visitor.received += content
        if len(visitor.received) > QUESTION_BYTES_MAX:
            self._part(visitor)
        elif not content:
            self._take(visitor)

    def _take(self, visitor: Visitor) -> None:
        self._no_longer_arriving(visitor)
        try:
            asked = visitor.asked = asked_of(bytes(visitor.received))
        except msgspec.DecodeError:
            self._part(visitor)
            return
        visitor.received.clear()
        if not self._places[asked.cheap].wait(asked.user, visitor):
            _send(visitor.socket, _reply(BUSY))
            self._part(visitor)

    def _begin(self) -> None:
        """Has copies of this process answer. The State is one they may use up."""
        ready = [visitor for places in self._places.values() for visitor in iter(places.take, None)]
        if not ready:
            return
        self._catch_up()
        gc.freeze()
        for visitor in ready:
            assert visitor.asked is not None
            child = fork_mortal()
            if child == 0:
                os._exit(
                    _answer_of_past(visitor.socket, visitor.asked, self._options)
                    if visitor.asked.seq >= 0
                    else _answer(
                        visitor.socket, visitor.asked, self.state, self._clock.now_ms(), self._forecaster.newest
                    )
                )
            visitor.since_s = time.monotonic()
            self._at_work[child] = visitor
            # Readable when the copy ends: a place is free then.
            self._selector.register(os.pidfd_open(child), selectors.EVENT_READ, child)

    def _reap(self) -> None:
        """Takes leave of copies that are done, and ends those that ponder too long."""
        for child, visitor in list(self._at_work.items()):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                self._end(child, visitor, os.waitstatus_to_exitcode(status))
            elif time.monotonic() - visitor.since_s > PATIENCE_S:
                os.kill(child, signal.SIGKILL)

    def _end(self, child: int, visitor: Visitor, code: int) -> None:
        del self._at_work[child]
        for key in [key for key in self._selector.get_map().values() if key.data == child]:
            self._selector.unregister(key.fileobj)
            os.close(key.fd)
        if visitor.asked is not None:
            self._places[visitor.asked.cheap].leave(visitor.asked.user)
        if code == -signal.SIGKILL:
            _send(visitor.socket, _reply(TOO_LONG))
        self._part(visitor)

    def _send_late_away(self) -> None:
        latest_s = time.monotonic() - ARRIVE_S
        for visitor in [visitor for visitor in self._arriving if visitor.since_s < latest_s]:
            self._part(visitor)

    def _no_longer_arriving(self, visitor: Visitor) -> None:
        if visitor in self._arriving:
            self._arriving.remove(visitor)
            self._selector.unregister(visitor.socket)

    def _part(self, visitor: Visitor) -> None:
        """Ends a connection, for copies of this process that hold it, too."""
        self._no_longer_arriving(visitor)
        with suppress(OSError):
            visitor.socket.shutdown(socket.SHUT_RDWR)
        visitor.socket.close()

    def _catch_up(self) -> None:
        """Folds in what was journaled meanwhile."""
        with self._database.reading() as connection:
            catch_up(connection, self.state, self._database.url, self._keeper.note)


def main(handle: str) -> int:
    """Runs the planner of a server. `handle` is the number of the file that holds its options."""
    options = options_of(handle)
    log = log_to_stderr("planner")
    # After a crash the loop must be back first: it needs the processor more.
    os.nice(5)
    load_installed_policies(log)
    listener = bind_unix(options.file("run", "planner.sock"))
    listener.setblocking(False)
    try:
        keeper = Keeper(options.file(), options.file("run"), log)
        forecaster = Forecaster(options.file(FORECASTS))
        planner = Planner(open_reader(options.store_url), listener, keeper, forecaster, options)
        log.info("ready", extra={"seq": planner.state.seq})
        while True:
            planner.turn()
    except PhalanxError as error:
        log.error(str(error))
        return 1


def _answer(visitor: socket.socket, asked: Asked, state: State, now_ms: int, forecast: Forecast | None) -> int:
    """In the copy: nothing of the original's is touched, and nothing is tidied up at the end."""
    visitor.settimeout(PATIENCE_S)
    if not asked.cheap:
        os.nice(DEAR_NICE)
    try:
        question = question_of(asked)
        if not isinstance(question, TakeSnapshot | HideValues):
            pass_time(state, now_ms)
        _send(visitor, answer(question, state, forecast))
    except (OSError, msgspec.DecodeError, msgspec.ValidationError):
        return 1
    return 0


def _answer_of_past(visitor: socket.socket, asked: Asked, options: Options) -> int:
    """The same about a moment of the past."""
    visitor.settimeout(PATIENCE_S)
    gc.disable()
    try:
        _send(visitor, answer_of_past(asked, options))
    except (OSError, msgspec.DecodeError, msgspec.ValidationError):
        return 1
    return 0


def _reply(refusal: Refusal) -> Reply:
    return Reply(refusal.status, json_of(refusal.body))


def _send(visitor: socket.socket, reply: Reply) -> None:
    with suppress(OSError):
        visitor.sendall(encoded(reply))
        visitor.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
