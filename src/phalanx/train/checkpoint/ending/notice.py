"""Being told to save now: by a signal, a warning of the cloud, the scheduler, or the program itself."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from phalanx.train.checkpoint.ending import grace

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

AHEAD_STEPS = 2
"""Ranks in lock-step are at most one step apart, so all hear of the step that is agreed before they reach it."""

DEADLINE_LEAD_S = 30.0
"""How long before `max_run` is over a save is begun, at least: the last moment at which it is surely in time."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Save now: why, until when on the wall clock, and whether training ends then."""

    reason: str
    until_s: float
    ends: bool


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """What became of a notice: `step` is durable in a tier, or else at most `steps_at_risk` steps would be lost."""

    notice: Notice
    step: int
    durable_step: int | None
    tier: str | None

    @property
    def is_durable(self) -> bool:
        return self.durable_step is not None and self.durable_step >= self.step

    @property
    def steps_at_risk(self) -> int:
        return max(0, self.step - (self.durable_step or 0))

    def __str__(self) -> str:
        if self.is_durable:
            return f"{self.notice.reason}: step {self.step} is durable ({self.tier})"
        last = "none" if self.durable_step is None else str(self.durable_step)
        return (
            f"{self.notice.reason}: step {self.step} is not durable yet, the last durable step is {last}: "
            f"at most {self.steps_at_risk} steps are lost"
        )


class Notices:
    """Takes notices in, and agrees with the other ranks after which step to save."""

    def __init__(self, store: Store | None) -> None:
        self._store = store
        self._own: Notice | None = None
        self._signalled: tuple[int, float] | None = None
        self._agreed: tuple[int, Notice] | None = None
        self._served = 0
        self._former: dict[int, Any] = {}

    def listen(self, signals: Sequence[int]) -> None:
        """Takes signals as notices. Only the main thread may; elsewhere the program's own handlers stay."""
        if threading.current_thread() is threading.main_thread():
            for number in signals:
                self._former[number] = signal.signal(number, self._on_signal)

    def stop_listening(self) -> None:
        """Puts the program's own handlers back."""
        for number, former in self._former.items():
            signal.signal(number, former)
        self._former = {}

    def give(self, notice: Notice) -> None:
        """Takes a notice; from any thread. One to end stays until it is served."""
        if self._own is None or notice.ends or not self._own.ends:
            self._own = notice

    def due(self, step: int) -> Notice | None:
        """The notice to be served after this step, the same on every rank."""
        self._take_signal()
        if self._store is None:
            return self._own
        if self._agreed is None and self._own is not None:
            proposal = f"{step + AHEAD_STEPS}|{self._own.until_s}|{int(self._own.ends)}|{self._own.reason}"
            # The first rank has its way, so that there is one step.
            self._store.compare_set(self._key, "", proposal)
        if self._agreed is None and self._store.check([self._key]):
            at, until, ends, reason = self._store.get(self._key).decode().split("|", 3)
            self._agreed = (int(at), Notice(reason, float(until), bool(int(ends))))
        if self._agreed is not None and step >= self._agreed[0]:
            return self._agreed[1]
        return None

    def served(self) -> None:
        """The notice has been acted on; the next one is a new one.

        One to end that came while one to save was agreed on has not been acted on.
        """
        done = self._own if self._agreed is None else self._agreed[1]
        is_open = self._own is not None and self._own.ends and done is not None and not done.ends
        self._own = self._own if is_open else None
        self._agreed = None
        self._served += 1

    @property
    def _key(self) -> str:
        return f"notice/{self._served}"

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # A handler interrupts whatever runs: files are read between steps, where also the notice file is sure to be.
        self._signalled = (number, time.time())

    def _take_signal(self) -> None:
        if self._signalled is None:
            return
        number, at_s = self._signalled
        self._signalled = None
        ending = grace.ending_after(at_s)
        name = signal.Signals(number).name
        self.give(Notice(f"{name} ({ending.reason})" if ending.reason else name, ending.until_s, ends=True))


class MaxRun:
    """Warns once, in time to save, that the job will be stopped because of its `max_run`."""

    def __init__(self) -> None:
        self._deadline_s = grace.deadline_s()

    def due(self, save_s: float, step_s: float) -> Notice | None:
        """A notice to save, not to end, once the deadline is near; `save_s` and `step_s` are what each takes."""
        if self._deadline_s is None:
            return None
        # A notice is served a few steps after it was given, and a save may take longer than the last one did.
        lead_s = max(DEADLINE_LEAD_S, 2 * save_s + (AHEAD_STEPS + 1) * step_s)
        if time.time() < self._deadline_s - lead_s:
            return None
        notice = Notice("max_run is nearly over", self._deadline_s, ends=False)
        self._deadline_s = None
        return notice
