"""The Slurm backend: one thread that submits, looks at what the nodes put down, and asks Slurm now and then."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue

from phalanx.backends.capability import Offer
from phalanx.backends.live import Adopted
from phalanx.backends.slurm.attempts import SlurmAttempts
from phalanx.backends.slurm.commands import SlurmError
from phalanx.backends.slurm.held import ask_holdings
from phalanx.backends.slurm.monitor import Monitor
from phalanx.backends.slurm.nodes import ask_nodes
from phalanx.backends.slurm.offer import slurm_offer
from phalanx.backends.slurm.orders import NodeYard
from phalanx.cluster.cluster import Cluster
from phalanx.protocol.action import Action
from phalanx.protocol.event import Event
from phalanx.workload.job import Job

Work = Callable[[], None]

FILES_S = 0.1
"""How often the reports of nodes are looked at while there are few; with many the looks come less often."""

FILES_PER_S = 2_000
MOVING_S, STEADY_S = 0.5, 3.0
"""How often Slurm is asked for our jobs: while one starts or ends, and otherwise."""

NODES_S = 3.0
"""How often Slurm is asked for its nodes."""

MOVING_MAX = 20
"""Of so many jobs that start or end it is asked what they hold, one by one; of more the next looks will tell."""

DOWN_S = 2.0
"""How soon Slurm is asked again after it did not answer."""

log = logging.getLogger(__name__)


class SlurmBackend:
    """Carries actions out on a Slurm cluster. `jobs` gives the job of an id, `cluster` the nodes of now."""

    def __init__(self, yard: NodeYard, jobs: Callable[[str], Job], cluster: Callable[[], Cluster]) -> None:
        self.wake: Callable[[], None] = lambda: None
        self._outbox: deque[Event] = deque()
        self._inbox: SimpleQueue[Work] = SimpleQueue()
        self._monitor = Monitor(cluster, yard.backend)
        self._attempts = SlurmAttempts(yard, jobs, cluster, lambda: self._monitor.addresses, self._emit)
        self._looked_s = self._asked_s = self._nodes_s = self._down_until_s = 0.0
        self._is_down = False
        self._open = True
        self._thread = threading.Thread(target=self._run, name="slurm backend", daemon=True)
        self._thread.start()

    def carry_out(self, action: Action, now: int) -> None:
        """Takes an action on."""
        self._inbox.put(partial(self._attempts.carry_out, action, now))

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
        """What this Slurm can do for us."""
        return slurm_offer()

    def adopt(self, attempts: Iterable[Adopted], now: int) -> None:
        """Takes over what runs, reports what has ended, and ends what belongs to no known attempt."""
        finished: Future[None] = Future()
        self._inbox.put(partial(self._adopt, tuple(attempts), now, finished))
        finished.result()

    def close(self) -> None:
        """Lets go; the jobs go on."""
        if self._open:
            self._inbox.put(self._stop_running)
            self._thread.join()

    def _adopt(self, attempts: tuple[Adopted, ...], now: int, finished: Future[None]) -> None:
        try:
            self._attempts.adopt(attempts, now)
        except Exception as error:
            # The caller that waits must not take over half of it; the next start tries again.
            finished.set_exception(error)
        else:
            finished.set_result(None)

    def _run(self) -> None:
        self._guard(self._look_at_nodes)
        while self._open:
            due_s = self._looked_s + self._patience_s()
            try:
                self._inbox.get(timeout=max(due_s - time.monotonic(), 0.0))()
            except Empty:
                self._looked_s = time.monotonic()
                self._guard(self._look)
        self._attempts.close()

    def _patience_s(self) -> float:
        if not self._attempts.live:
            return min(NODES_S, 1.0)
        files = sum(len(each.nodes) for each in self._attempts.live.values())
        return max(FILES_S, files / FILES_PER_S)

    def _look(self) -> None:
        now_s = time.monotonic()
        if now_s < self._down_until_s:
            return
        pause_s = MOVING_S if self._attempts.are_moving else STEADY_S
        with_slurm = bool(self._attempts.live) and now_s - self._asked_s >= pause_s
        if with_slurm:
            self._asked_s = now_s
        self._attempts.look(with_slurm)
        if now_s - self._nodes_s >= NODES_S:
            self._look_at_nodes()
        self._say_up(with_slurm)

    def _look_at_nodes(self) -> None:
        self._nodes_s = time.monotonic()
        live = list(self._attempts.live.values())
        moving = [each.slurm_id for each in live if each.is_moving and each.slurm_id]
        moving = moving if len(moving) <= MOVING_MAX else []
        before = ask_holdings(moving)
        nodes = ask_nodes()
        # What a job held before and holds after is what the nodes told of in between.
        held = {job: after for job, after in ask_holdings(moving).items() if after is not None and after == before[job]}
        self._emit(self._monitor.look(nodes, live, held))

    def _guard(self, look: Work) -> None:
        """Nothing that Slurm answers, or does not, ends the thread."""
        try:
            look()
        except SlurmError as error:
            self._down_until_s = time.monotonic() + DOWN_S
            if not self._is_down:
                log.warning(
                    "Slurm does not answer; what runs goes on, and nothing starts or is known to end: %s", error
                )
            self._is_down = True
        except Exception:
            self._down_until_s = time.monotonic() + DOWN_S
            log.exception("a fault of the Slurm backend")

    def _say_up(self, has_answered: bool) -> None:
        if has_answered and self._is_down:
            log.warning("Slurm answers again")
            self._is_down = False

    def _stop_running(self) -> None:
        self._open = False

    def _emit(self, events: list[Event]) -> None:
        if events:
            self._outbox.extend(events)
            self.wake()
