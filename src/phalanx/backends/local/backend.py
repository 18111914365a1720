"""The local backend: attempts as processes on this machine, each looked after by a shepherd that outlives us.

One thread does all the work and waits for whatever comes first: an action, or a word from a shepherd.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue

from phalanx.backends.capability import Offer
from phalanx.backends.live import Adopted
from phalanx.backends.local.host.offer import local_offer
from phalanx.backends.local.orders import Yard
from phalanx.backends.local.supervisors import Supervisors
from phalanx.protocol.action import Action
from phalanx.protocol.event import Event
from phalanx.workload.job import Job

Work = Callable[[], None]
Keeping = Callable[[Yard, Callable[[str], Job], Callable[[list[Event]], None]], Supervisors]


class LocalBackend:
    """Carries actions out on this machine. `jobs` gives the job of an id."""

    def __init__(self, yard: Yard, jobs: Callable[[str], Job], keeping: Keeping = Supervisors) -> None:
        self.wake: Callable[[], None] = lambda: None
        self._yard = yard
        self._outbox: deque[Event] = deque()
        self._inbox: SimpleQueue[Work] = SimpleQueue()
        self._herd = keeping(yard, jobs, self._emit)
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._herd.watch(self._bell, self._answer_bell)
        self._open = True
        self._thread = threading.Thread(target=self._run, name="local backend", daemon=True)
        self._thread.start()

    def carry_out(self, action: Action, now: int) -> None:
        """Takes an action on."""
        self._post(partial(self._herd.carry_out, action, now))

    def events(self, now: int) -> list[Event]:
        """What has happened since the last look."""
        happened = []
        while self._outbox:
            happened.append(self._outbox.popleft())
        return happened

    def next_event_ms(self) -> int | None:
        """Unknown; `wake` is called when something has happened."""
        return None

    def offer(self) -> Offer:
        """What this machine can do."""
        return local_offer(self._yard)

    def adopt(self, attempts: Iterable[Adopted], now: int) -> None:
        """Takes over what runs, reports what has ended, and ends what belongs to no known attempt."""
        finished: Future[None] = Future()
        self._post(partial(self._adopt, tuple(attempts), now, finished))
        finished.result()

    def close(self) -> None:
        """Lets go; the tasks go on."""
        if self._open:
            self._post(self._stop_running)
            self._thread.join()

    def _adopt(self, attempts: tuple[Adopted, ...], now: int, finished: Future[None]) -> None:
        try:
            self._herd.adopt(attempts, now)
        except Exception as error:
            # The caller that waits must not take over half of it; the next start tries again.
            finished.set_exception(error)
        else:
            finished.set_result(None)

    def _post(self, work: Work) -> None:
        self._inbox.put(work)
        os.eventfd_write(self._bell, 1)

    def _run(self) -> None:
        while self._open:
            self._herd.attend()
        self._herd.let_go()
        os.close(self._bell)

    def _stop_running(self) -> None:
        self._open = False

    def _answer_bell(self) -> None:
        os.eventfd_read(self._bell)
        while True:
            try:
                work = self._inbox.get_nowait()
            except Empty:
                return
            work()

    def _emit(self, events: list[Event]) -> None:
        self._outbox.extend(events)
        self.wake()
