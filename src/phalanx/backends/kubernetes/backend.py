"""The Kubernetes backend: one thread that creates pods, hears of them by watches, and asks again now and then."""

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
from phalanx.backends.kubernetes.attempts import KubeAttempts
from phalanx.backends.kubernetes.nodes import PATH as NODES_PATH
from phalanx.backends.kubernetes.nodes import Nodes, ReportedNode
from phalanx.backends.kubernetes.offer import kubernetes_offer
from phalanx.backends.kubernetes.pod import SERVER, TaskPod
from phalanx.backends.kubernetes.site import Site
from phalanx.backends.live import Adopted
from phalanx.backends.local.orders import Yard
from phalanx.cluster.cluster import Cluster
from phalanx.kube.api.errors import ApiError
from phalanx.kube.api.reflector import Broken, Changed, Listed, News, Reflector
from phalanx.kube.objects.pod import Pod
from phalanx.protocol.action import Action
from phalanx.protocol.event import Event
from phalanx.workload.job import Job

Work = Callable[[], None]

LOOK_S = 1.0
"""How often what could not be done is tried again, and what is overdue is looked for. All else is told by watches."""

log = logging.getLogger(__name__)


class KubernetesBackend:
    """Carries actions out as pods. `jobs` gives the job of an id."""

    def __init__(self, site: Site, yard: Yard, jobs: Callable[[str], Job], cluster: Cluster) -> None:
        self.wake: Callable[[], None] = lambda: None
        self._site = site
        self._outbox: deque[Event] = deque()
        self._inbox: SimpleQueue[Work] = SimpleQueue()
        names = tuple(node.name for node in cluster.nodes)
        self._nodes = Nodes(names, yard.backend, site.server, site.settings.lost_after_s)
        arrived = partial(self._inbox.put, self._look_at_logs)
        self._attempts = KubeAttempts(site, yard, jobs, self._nodes, arrived, self._emit)
        self._watches = self._watched()
        self._looked_s = 0.0
        self._open = True
        self._thread = threading.Thread(target=self._run, name="kubernetes backend", daemon=True)

    def start(self) -> None:
        """Takes the namespace and begins to watch; raises where another server has it."""
        try:
            self._attempts.claim()
        except ApiError as error:
            log.warning("the namespace is taken once the API server answers: %s", error)
        except Exception:
            self._attempts.close()
            self._site.client.close()
            raise
        for watch in self._watches:
            watch.start()
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
        """What Kubernetes can do for us."""
        return kubernetes_offer()

    def adopt(self, attempts: Iterable[Adopted], now: int) -> None:
        """Takes over what runs, reports what has ended, and ends what belongs to no known attempt."""
        finished: Future[None] = Future()
        self._inbox.put(partial(self._adopt, tuple(attempts), now, finished))
        finished.result()

    def close(self) -> None:
        """Lets go; the pods go on."""
        if self._open:
            self._inbox.put(self._stop_running)
            self._thread.join()
            for watch in self._watches:
                watch.close()
            self._site.client.close()

    def _watched(self) -> list[Reflector[TaskPod] | Reflector[ReportedNode] | Reflector[Pod]]:
        client, tell = self._site.client, self._hear
        others = {"labelSelector": f"{SERVER}!={self._site.server}", "fieldSelector": "spec.nodeName!="}
        return [
            Reflector(client, "ours", self._site.path("pods"), TaskPod, tell, {"labelSelector": self._site.selector}),
            Reflector(client, "nodes", NODES_PATH, ReportedNode, tell),
            Reflector(client, "others", "/api/v1/pods", Pod, tell, others),
        ]

    def _hear(self, news: News) -> None:
        self._inbox.put(partial(self._take, news))

    def _take(self, news: News) -> None:
        match news:
            case Listed(kind="ours", objects=pods):
                self._attempts.take_pods(pods)
            case Changed(kind="ours", object=pod, gone=gone):
                self._attempts.take_pod(pod, gone)
            case Listed(kind="nodes", objects=nodes):
                self._nodes.take_nodes(nodes)
            case Changed(kind="nodes", object=node, gone=gone):
                self._nodes.take_node(node, gone)
            case Listed(kind="others", objects=pods):
                self._nodes.take_pods(pods)
            case Changed(kind="others", object=pod, gone=gone):
                self._nodes.take_pod(pod, gone)
            case Broken(error=error):
                log.error("the API server refuses what the backend must know: %s", error)
        if not (isinstance(news, Listed | Changed) and news.kind == "ours"):
            self._emit(self._nodes.news())

    def _adopt(self, attempts: tuple[Adopted, ...], now: int, finished: Future[None]) -> None:
        try:
            self._attempts.adopt(attempts, now)
        except Exception as error:
            # The caller that waits must not take over half of it; the next start tries again.
            finished.set_exception(error)
        else:
            finished.set_result(None)

    def _run(self) -> None:
        while self._open:
            due_s = self._looked_s + LOOK_S
            try:
                work = self._inbox.get(timeout=max(due_s - time.monotonic(), 0.0))
            except Empty:
                self._looked_s = time.monotonic()
                work = self._look
            self._guard(work)
        self._attempts.close()

    def _look(self) -> None:
        self._attempts.look()
        self._emit(self._nodes.news())

    def _look_at_logs(self) -> None:
        self._attempts.follow_leaving()

    def _guard(self, work: Work) -> None:
        """Nothing that the API server answers, or does not, ends the thread."""
        try:
            work()
        except Exception:
            log.exception("a fault of the Kubernetes backend")

    def _stop_running(self) -> None:
        self._open = False

    def _emit(self, events: list[Event]) -> None:
        if events:
            self._outbox.extend(events)
            self.wake()
