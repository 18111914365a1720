"""Bindings: when each pod was seen to be bound, by a watch of the same kind for every scheduler."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from phalanx.bench.kubernetes.objects import PODS
from phalanx.kube.api.client import Client
from phalanx.kube.api.reflector import Changed, Listed, News, Reflector
from phalanx.kube.objects.pod import Pod


class Bindings:
    """The moments at which pods were bound, by their names, and those that run."""

    def __init__(self) -> None:
        self.at_s: dict[str, float] = {}
        self._run: dict[str, None] = {}
        self.is_listed = threading.Event()
        self._grew = threading.Condition()
        self._forgotten: dict[str, None] = {}

    def tell(self, news: News) -> None:
        """Takes in what a reflector tells."""
        now = time.monotonic()
        pods = news.objects if isinstance(news, Listed) else (news.object,) if isinstance(news, Changed) else ()
        with self._grew:
            for pod in pods:
                if pod.spec.node_name and pod.metadata.name not in self._forgotten:
                    self.at_s.setdefault(pod.metadata.name, now)
                    if pod.status.phase == "Running":
                        self._run[pod.metadata.name] = None
            self._grew.notify_all()
        self.is_listed.set()

    def forget(self, name: str) -> None:
        """Leaves out a pod, also where the watch tells of it later."""
        with self._grew:
            self._forgotten[name] = None
            self.at_s.pop(name, None)

    def wait_for(self, count: int, within_s: float) -> bool:
        """Waits until so many pods are bound; whether they are in time."""
        with self._grew:
            return self._grew.wait_for(lambda: len(self.at_s) >= count, within_s)

    def wait_until_run(self, count: int, within_s: float) -> bool:
        """Waits until so many pods run; whether they do in time."""
        with self._grew:
            return self._grew.wait_for(lambda: len(self._run) >= count, within_s)

    def wait_for_rest(self, quiet_s: float, within_s: float) -> None:
        """Waits until no pod was bound for some time."""
        until = time.monotonic() + within_s
        with self._grew:
            while time.monotonic() < until:
                before = len(self.at_s)
                if not self._grew.wait_for(lambda before=before: len(self.at_s) > before, quiet_s):  # type: ignore[misc]
                    return


@contextmanager
def watching(api: Client) -> Iterator[Bindings]:
    """A watch of all pods meanwhile, which has listed them."""
    found = Bindings()
    reflector = Reflector(api, "pods", PODS, Pod, found.tell)
    reflector.start()
    try:
        found.is_listed.wait(60)
        yield found
    finally:
        reflector.close()
