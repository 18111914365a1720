"""A run of the scheduler: watches feed one inbox, and one loop takes turns until it is told to end."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable
from typing import BinaryIO

from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import UnreachableError
from phalanx.kube.api.reflector import Broken, Listed, News
from phalanx.kube.binder import Answer, Binder, Bound, Evicted
from phalanx.kube.gangs.discovery import Kinds, served_groups
from phalanx.kube.gangs.groups import RAY
from phalanx.kube.gangs.lookout import Lookout, Served
from phalanx.kube.lease import Lease
from phalanx.kube.mirror import BUDGETS, CLAIMS, CLASSES, NAMESPACES, NODES, PODS, PRIORITIES, VOLUMES, Mirror
from phalanx.kube.objects.budget import DisruptionBudget
from phalanx.kube.objects.meta import Stored
from phalanx.kube.objects.node import KubeNode
from phalanx.kube.objects.pod import Pod
from phalanx.kube.objects.queue import PriorityClass
from phalanx.kube.objects.volume import PersistentVolume, StorageClass, VolumeClaim
from phalanx.kube.pulse import Pulse
from phalanx.kube.reporter import Reporter
from phalanx.kube.scheduler import Scheduler
from phalanx.kube.settings import Settings
from phalanx.kube.volcano.controller import Controller
from phalanx.kube.watches import Watches

IDLE_S = 5.0
BATCH_MAX = 5000


class Close:
    """Ends the run."""


Inbox = queue.SimpleQueue[News | Answer | Served | Close]


class Run:
    """Schedules until `close` is called. An API server that refuses us raises what it said. `jobs` is what makes pods
    of Volcano's Jobs, where that is done here. `say` tells a person which custom resources come and go meanwhile.
    """

    def __init__(
        self,
        client: Client,
        settings: Settings,
        journal: BinaryIO | None = None,
        lease: Lease | None = None,
        jobs: Controller | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._client = client
        self._lease = lease
        self._journal = journal
        self._inbox: Inbox = queue.SimpleQueue()
        self.mirror = Mirror(settings.scheduler, settings.preempt_others_below)
        self.mirror.queue_label = settings.queue_label
        self._may = lease.holds if lease is not None else _always
        self.binder = Binder(client, self._inbox.put, self._may)
        self._reporter = Reporter(client)
        self._jobs = jobs
        self.scheduler = Scheduler(self.mirror, self.binder, self._reporter, settings)
        self._watches = Watches(client, self._inbox.put, say)
        self.reflectors = self._watches.reflectors
        self._lookout = Lookout(client, self._inbox.put)
        self.pulse = Pulse()

    def answers(self) -> dict[tuple[str, int], int]:
        """How many answers of the API server came, by method and status."""
        return self._client.answers()

    def close(self) -> None:
        """Has the run end after the present turn. May be called from any thread, and in a signal handler."""
        self._inbox.put(Close())

    def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Waits for the lease, if there is one; then lists, adopts what is bound, and takes turns."""
        try:
            if not self._lead():
                return
            self._watch()
            while self.mirror.listed < self.reflectors.keys():
                if not self._receive(IDLE_S):
                    return
            self.scheduler.begin(_now_ms(), self._journal)
            if RAY in self.reflectors:
                self.binder.resume_left()
            if self._jobs is not None:
                self._jobs.start(self._may, self._inbox.put)
            self._lookout.start()
            on_ready()
            self.pulse.leads = self.pulse.is_ready = True
            self._turn()
            while self._receive(self._wait_s()):
                self._turn()
        finally:
            if self._jobs is not None:
                self._jobs.close()
            self._lookout.close()
            self._watches.close()
            self.binder.close()
            self._reporter.close()
            if self._lease is not None:
                self._lease.close()

    def _turn(self) -> None:
        began = time.monotonic()
        self.scheduler.turn(_now_ms())
        self.pulse.turned(time.monotonic() - began, len(self.mirror.nodes))

    def _lead(self) -> bool:
        """Waits until this replica holds the lease; False if the run is to end before that."""
        lease = self._lease
        if lease is None:
            return True
        is_held = lease.try_take()
        # A replica that waits for the lease is as it should be.
        self.pulse.is_ready = True
        while not is_held:
            if not self._receive(lease.retry_s):
                return False
            # A server that is restarted meanwhile is waited for.
            with contextlib.suppress(UnreachableError):
                is_held = lease.try_take()
        self.pulse.is_ready = False
        lease.keep(lambda error: self._inbox.put(Broken(error)))
        return True

    def _watch(self) -> None:
        kinds: Kinds = {
            NODES: ("/api/v1/nodes", KubeNode),
            PODS: ("/api/v1/pods", Pod),
            NAMESPACES: ("/api/v1/namespaces", Stored),
            CLAIMS: ("/api/v1/persistentvolumeclaims", VolumeClaim),
            VOLUMES: ("/api/v1/persistentvolumes", PersistentVolume),
            BUDGETS: ("/apis/policy/v1/poddisruptionbudgets", DisruptionBudget),
            PRIORITIES: ("/apis/scheduling.k8s.io/v1/priorityclasses", PriorityClass),
            CLASSES: ("/apis/storage.k8s.io/v1/storageclasses", StorageClass),
            **served_groups(self._client),
        }
        self._reporter.groups = self._watches.paths
        self._watches.begin(kinds)

    def _wait_s(self) -> float:
        """How long there is nothing to do unless something happens."""
        if self.scheduler.is_due:
            return 0.0
        assert self.scheduler.engine is not None, "begin comes before turn"
        due_ms = self.scheduler.engine.wakes_at_ms()
        return IDLE_S if due_ms is None else min(max(due_ms - _now_ms(), 0) / 1000, IDLE_S)

    def _receive(self, wait_s: float) -> bool:
        """Takes in what has come, or comes within some time; False if the run is to end."""
        self.pulse.beat()
        try:
            news = self._inbox.get(timeout=wait_s) if wait_s else self._inbox.get_nowait()
            for _ in range(BATCH_MAX):
                if not self._take(news):
                    return False
                news = self._inbox.get_nowait()
        except queue.Empty:
            pass
        return True

    def _take(self, news: News | Answer | Served | Close) -> bool:
        match news:
            case Close():
                return False
            case Served(kinds=kinds):
                for kind in self._watches.renew(kinds):
                    self.mirror.take(Listed(kind, ()))
            case Broken() if self._watches.may_miss(news):
                pass
            case Broken(error=error):
                raise error
            case Bound() | Evicted():
                self.scheduler.answer(news)
            # A watch that was ended may have told of something before.
            case _ if news.kind in self.reflectors:
                self.mirror.take(news)
        return True


def _always() -> bool:
    return True


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
