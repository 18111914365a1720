"""Attempts on an engine that runs them elsewhere: each action is taken on once, whatever its engine answers is told
once, and what runs is found again after a restart. What an engine does for them, its own class adds.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Generic, Protocol, TypeVar

from phalanx.backends.live import Adopted
from phalanx.backends.local.attempt_files import Answer, AttemptState, Ending
from phalanx.backends.local.endings import LOST, OUTCOMES, STOPPED, event_of
from phalanx.backends.local.fence import Fence
from phalanx.backends.local.folder import new_state
from phalanx.backends.local.orders import Yard
from phalanx.backends.local.unknown_attempts import put_away, strays_of
from phalanx.errors import PhalanxError
from phalanx.protocol.action import Action, ActionId, Start, Stop
from phalanx.protocol.event import AttemptEnded, Event, Failed

Key = tuple[str, int]

RESTORED_GRACE_MS, RESTORED_WAIT_S = 30_000, 120.0
"""What a restored store does not know has so long to end, and is waited for so long before work is taken on."""

LAST = 1 << 30
"""The number of a stop that no engine asked for: it comes after all other actions."""

log = logging.getLogger(__name__)


class RemoteAttempt(Protocol):
    """What is asked of an attempt here. Nothing is told of a `stray`, which no store knows."""

    start: ActionId | None
    stops: list[ActionId]
    failure: Answer | None
    stray: bool

    @property
    def key(self) -> Key:
        """Job and attempt."""

    @property
    def is_leaving(self) -> bool:
        """Whether it is to end."""

    def put_down(self) -> None:
        """Writes its paper."""


A = TypeVar("A", bound=RemoteAttempt)


class RemoteAttempts(ABC, Generic[A]):
    """Works in one thread. What happens is handed to `emit`. `passing` are errors of an engine that does not answer:
    what was asked of it is asked again until it does.
    """

    engine: ClassVar[str]
    passing: ClassVar[tuple[type[Exception], ...]] = ()

    def __init__(self, yard: Yard, emit: Callable[[list[Event]], None]) -> None:
        self._yard: Yard = yard
        self._hand_over = emit
        self._fence = Fence(yard.data)
        self.live: dict[Key, A] = {}

    def close(self) -> None:
        """Lets another server work here."""
        self._fence.close()

    # What an engine adds

    @abstractmethod
    def _plan(self, action: Start, now: int) -> A:
        """An attempt with its folder and all that is written down of it, before the engine hears of it."""

    @abstractmethod
    def _push(self, attempt: A) -> None:
        """Brings an attempt on as far as the engine lets us."""

    @abstractmethod
    def _stop(self, action: Stop) -> None:
        """Has an attempt end; what does not run is answered for."""

    @abstractmethod
    def _read(self, key: Key) -> A | None:
        """An attempt from its paper; None if there is none."""

    @abstractmethod
    def _take_up(self, attempt: A) -> None:
        """Goes on with an attempt that was read."""

    @abstractmethod
    def _end_unknown(self, attempt: A, grace_ms: int) -> None:
        """Has an attempt end that is not known."""

    @abstractmethod
    def _look_again(self) -> None:
        """Sees what has become of attempts."""

    # What is asked

    def carry_out(self, action: Action, now: int) -> None:
        """Has an action done, or answers why not."""
        self._see_to(action, now, self._fence.refuses)

    def _see_to(self, action: Action, now: int, refuses: Callable[[ActionId], str]) -> None:
        try:
            refusal = refuses(action.id)
            if refusal:
                self._emit(Failed(action.id, refusal, retryable=False))
            elif isinstance(action, Start):
                self._start(action, now)
            elif isinstance(action, Stop):
                self._stop(action)
            else:
                word = type(action).__name__.lower()
                self._emit(Failed(action.id, f"{word}: not possible on {self.engine}", retryable=False))
        except self.passing as error:
            log.warning("%s", error)
        except PhalanxError as error:
            self._emit(Failed(action.id, str(error), retryable=False))
        except OSError as error:
            self._emit(Failed(action.id, f"{error.filename or 'this machine'}: {error.strerror}", retryable=True))
        except Exception as error:
            # A fault of ours must not end the thread, and with it every other job's news.
            log.exception("%s", action)
            self._emit(Failed(action.id, f"a fault of the {self.engine} backend: {error!r}", retryable=False))

    def _start(self, action: Start, now: int) -> None:
        """Starts an attempt once, however often it is asked for."""
        key = (action.id.job, action.id.attempt)
        folder = self._yard.folder(*key)
        state = folder.state()
        if state is not None and (state["ending"] is not None or state["answers"]):
            self._answer_again(action, state)
            return
        if key in self.live:
            return
        self._end_older(action.id)
        attempt = self._plan(action, now)
        state = new_state()
        state["newest"] = action.id.seq
        folder.write_state(state)
        attempt.put_down()
        self._fence.mark(*key)
        self.live[key] = attempt
        self._push(attempt)

    def _end_older(self, action: ActionId) -> None:
        """Nothing of an older attempt may run beside a newer one, even if it is not known any more."""
        for key, attempt in list(self.live.items()):
            if key[0] == action.job and key[1] < action.attempt and not attempt.is_leaving:
                self._stop(Stop(ActionId(action.term, *key, LAST), 0, "superseded"))

    # What is told

    def _close(self, attempt: A, answers: list[Answer], ending: Ending, past: bool = True) -> None:
        """Puts down and tells how an attempt ended. Its stops are answered, and make it `stopped`."""
        if attempt.stops:
            ending = STOPPED if attempt.start else Ending(outcome="stopped", exit_code=0, reason="stopped")
        answers = [*answers, *map(_granted, attempt.stops)]
        state = self._yard.folder(*attempt.key).close(answers, ending)
        self._forget(attempt)
        if not attempt.stray:
            self._tell(attempt.key, answers, state["ending"] or ending, past)

    def _forget(self, attempt: A) -> None:
        self.live.pop(attempt.key, None)
        self._fence.unmark(*attempt.key)

    def _tell(self, key: Key, answers: Iterable[Answer], ending: Ending | None, past: bool = True) -> None:
        """Answers, and an end. One that is told late (`past`) is told with its time, by the clock of its node."""
        events: list[Event] = [event_of(*key, answer) for answer in answers if answer["seq"] != LAST]
        if ending is not None and ending["outcome"] in OUTCOMES:
            cause = ending["reason"].partition(":")[0].partition(" ")[0] or "exit"
            ended_ms = ending.get("ended_ms") if past else None
            outcome = OUTCOMES[ending["outcome"]]
            events.append(AttemptEnded(*key, outcome, ending["exit_code"], ending["reason"], cause, ended_ms))
        self._emit(*events)

    def _answer_for(self, action: Stop) -> None:
        """Answers a stop of what does not run."""
        folder = self._yard.folder(action.id.job, action.id.attempt)
        folder.make()
        self._answer_again(action, folder.close([_granted(action.id)], STOPPED))
        self._fence.unmark(action.id.job, action.id.attempt)

    def _answer_again(self, action: Action, state: AttemptState) -> None:
        known = [answer for answer in state["answers"] if answer["seq"] == action.id.seq]
        if known:
            self._emit(*(event_of(action.id.job, action.id.attempt, answer) for answer in known))
        elif action.id.seq < state["newest"] or state["ending"] is not None:
            reason = f"action {state['newest']} of this attempt came first"
            self._emit(Failed(action.id, reason, retryable=False))

    def _emit(self, *events: Event) -> None:
        if events:
            self._hand_over(list(events))

    # What is taken over

    def adopt(self, attempts: Iterable[Adopted], now: int) -> None:
        """Takes over what runs, tells what has ended, and ends what belongs to no known attempt."""
        present = {(each.job, each.attempt): each for each in attempts}
        if self._yard.history.restored:
            self._settle_restored(present, now)
        for key in list(self._fence.marked()):
            if key not in present:
                self._end_stray(key, 0)
        for each in present.values():
            self._adopt(each, now)

    def _adopt(self, adopted: Adopted, now: int) -> None:
        key = (adopted.job, adopted.attempt)
        state = self._yard.folder(*key).state()
        awaits_start = any(isinstance(action, Start) for action in adopted.in_flight)
        if state is not None and state["ending"] is not None:
            self._tell(key, state["answers"], state["ending"])
        elif state is not None or not awaits_start:
            self._resume(key, state, awaits_start)
        for action in adopted.in_flight:
            # A leader that takes over stands in for what older leaders have asked for.
            self._see_to(action, now, self._fence.outdated)

    def _resume(self, key: Key, state: AttemptState | None, awaits_start: bool) -> None:
        """Goes on with an attempt from its paper."""
        attempt = self._read(key) if state is not None else None
        if attempt is not None:
            self.live[key] = attempt
            self._fence.mark(*key)
            self._take_up(attempt)
        elif state is None or not awaits_start:
            folder = self._yard.folder(*key)
            folder.make()
            self._tell(key, (), folder.close([], LOST)["ending"])

    def _end_stray(self, key: Key, grace_ms: int) -> None:
        """Ends what may run for an attempt that is not known; nothing of it is told."""
        found = self._read(key)
        if found is None:
            self._fence.unmark(*key)
            return
        found.start, found.stops, found.failure, found.stray = None, [], None, True
        self.live[key] = found
        self._fence.mark(*key)
        self._end_unknown(found, grace_ms)

    def _settle_restored(self, present: Mapping[Key, Adopted], now: int) -> None:
        """Ends what a restored store does not know, waits for that, and puts its folders away."""
        strays = list(strays_of(self._yard, present))
        unknown = {(stray.job, stray.attempt) for stray in strays}
        running = list(self._fence.marked())
        ended = [key for key in running if key in unknown or key not in present]
        for key in ended:
            self._end_stray(key, RESTORED_GRACE_MS)
        deadline_s = time.monotonic() + RESTORED_WAIT_S
        while any(key in self.live for key in ended) and time.monotonic() < deadline_s:
            self._look_again()
            time.sleep(0.2)
        for stray in strays:
            was_running = (stray.job, stray.attempt) in running
            self._yard.history.found(put_away(self._yard, stray, was_running, now))


def _granted(stop: ActionId) -> Answer:
    return Answer(term=stop.term, seq=stop.seq, ok=True, reason="", retryable=True, node="")
