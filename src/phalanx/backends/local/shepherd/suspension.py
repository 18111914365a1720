"""Suspension: an attempt is frozen in place, or leaves its devices to other jobs and its device memory on the host."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from functools import partial

from phalanx.backends.local.attempt_files import Moved
from phalanx.backends.local.shepherd.answers import AnswerLog, Pending
from phalanx.backends.local.shepherd.swap import Swap, SwapOutcome
from phalanx.backends.local.shepherd.tasks.task_set import Failure
from phalanx.backends.local.shepherd.tasks.tidy import freeze, thaw


class Suspension:
    """Suspends and resumes. `spared` are the sessions of people that look on; `on_lost` hears of an attempt that cannot
    go on. While device memory is moved, the phase of the attempt is `suspending` or `resuming`.
    """

    def __init__(
        self,
        book: AnswerLog,
        swap: Swap,
        spared: Callable[[], Collection[int]],
        on_lost: Callable[[Pending, str], None],
    ) -> None:
        self._book = book
        self._swap = swap
        self._spared = spared
        self._on_lost = on_lost
        self.is_swapped = False
        self._moved_mb = 0

    def freeze(self, action: Pending) -> None:
        """Freezes every process; its devices stay its own."""
        self._book.phase = "suspended"
        freeze()
        self._book.answer(action)

    def thaw(self, action: Pending) -> None:
        """Lets every process go on."""
        self._book.phase = "running"
        thaw()
        self._book.answer(action)

    def leave_devices(self, action: Pending, host_mb: int) -> None:
        """Moves device memory to the host, then freezes every process; or leaves all running."""
        self._book.phase = "suspending"
        for task in self._book.tasks.values():
            task.lend_memory(host_mb)
        self._swap.begin(_order("out"), partial(self._left, action))

    def _left(self, action: Pending, outcome: SwapOutcome) -> None:
        if self._book.phase != "suspending":
            self._book.answer(action, Failure(f"it is {self._book.phase}, not running any more", retryable=False))
        elif outcome["ok"]:
            freeze(self._spared())
            self.is_swapped = True
            self._book.phase = "suspended"
            self._moved_mb = outcome["mb"]
            self._book.answer(action, moved=Moved(way="out", mb=outcome["mb"], ms=outcome["ms"]))
        elif outcome.get("cut_short", False):
            # A process may be locked: which, and how far it came, the driver knows.
            self._swap.begin(_order("undo"), partial(self._stay, action, outcome["reason"]))
        else:
            self._stay(action, outcome["reason"], SwapOutcome(ok=True))

    def _stay(self, action: Pending, reason: str, undone: SwapOutcome) -> None:
        """It could not be suspended, and runs on."""
        words = reason if undone["ok"] else f"{reason}; {undone['reason']}"
        if self._book.phase == "suspending":
            self._book.phase = "running"
            self._take_memory_back()
        self._book.answer(action, Failure(words))

    def have_devices(self, action: Pending, devices: Mapping[str, str], places: Mapping[str, list[int]]) -> None:
        """Moves device memory back, to devices that take the place of the old ones, and lets every process go on."""
        self._book.phase = "resuming"
        # The driver works in threads of the processes themselves.
        thaw()
        self._swap.begin({**_order("in"), "devices": dict(devices)}, partial(self._had, action, places))

    def _had(self, action: Pending, places: Mapping[str, list[int]], outcome: SwapOutcome) -> None:
        if self._book.phase != "resuming":
            self._book.answer(action, Failure(f"it is {self._book.phase}, not suspended any more", retryable=False))
            return
        if not outcome["ok"]:
            self._on_lost(action, outcome["reason"])
            return
        self.is_swapped = False
        self._take_memory_back()
        for task in self._book.tasks.values():
            task.order["devices"] = places.get(str(task.rank), task.order["devices"])
        self._book.write_gang()
        self._book.phase = "running"
        self._book.answer(action, moved=Moved(way="in", mb=self._moved_mb, ms=outcome["ms"]))

    def _take_memory_back(self) -> None:
        for task in self._book.tasks.values():
            task.lend_memory(0)


def _order(what: str) -> dict[str, object]:
    """Of all processes: what a user has begun beside the tasks would hold the devices, too."""
    return {"do": what, "of": os.getpid()}
