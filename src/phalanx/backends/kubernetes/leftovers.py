"""What is left of attempts that are over: it is deleted until it is gone."""

from __future__ import annotations

import logging
from collections.abc import Callable

from phalanx.backends.kubernetes.manifests import Owner
from phalanx.backends.kubernetes.pod import ATTEMPT, JOB, TaskPod
from phalanx.backends.kubernetes.site import Site
from phalanx.kube.api.errors import ApiError
from phalanx.kube.objects.meta import Stored

log = logging.getLogger(__name__)


class Leftovers:
    """Deletions that have not been carried out yet, each by what it is of."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._waiting: dict[str, Callable[[], None]] = {}
        self._is_live: Callable[[str, int], bool] | None = None

    def clear(self) -> None:
        """Tries all of them. Those that fail are tried again at the next call."""
        self._look()
        for name, delete in list(self._waiting.items()):
            try:
                delete()
            except ApiError as error:
                log.warning("%s is not deleted yet: %s", name, error)
                return
            del self._waiting[name]

    def add_pod(self, pod: TaskPod) -> None:
        """A pod whose attempt is over, or known to none."""
        name, uid = pod.metadata.name, pod.metadata.uid
        # One that has ended wholly has nothing to wait for; beside a task that has, others may still run.
        grace_s = 0 if pod.status.phase in ("Succeeded", "Failed") or not pod.spec.node_name else 1
        self._waiting[f"pod {uid}"] = lambda: self._site.delete_pod(name, uid, grace_s)

    def add_objects(self, owner: Owner, meets: bool) -> None:
        """The Secret and the Service of an attempt that is over."""
        for plural in ("secrets", "services") if meets else ("secrets",):
            self._add(plural, owner.name)

    def seek(self, is_live: Callable[[str, int], bool]) -> None:
        """Looks, once, for what attempts that are over have left when a server was killed."""
        self._is_live = is_live

    def _look(self) -> None:
        if self._is_live is None:
            return
        try:
            made = {plural: list(self._site.made(plural)) for plural in ("secrets", "services")}
        except ApiError as error:
            log.warning("what was left by attempts that are over is looked for later: %s", error)
            return
        for plural, objects in made.items():
            for each in objects:
                if not self._is_live(*_attempt_of(each)):
                    self._add(plural, each.metadata.name)
        self._is_live = None

    def _add(self, plural: str, name: str) -> None:
        self._waiting[f"{plural} {name}"] = lambda: self._site.delete(plural, name)


def _attempt_of(made: Stored) -> tuple[str, int]:
    number = (made.metadata.labels or {}).get(ATTEMPT, "")
    return (made.metadata.annotations or {}).get(JOB, ""), int(number) if number.isdecimal() else 0
