"""A scheduler without an API server: what it asks of one is taken down, and tests say what one would."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import msgspec

from kube_objects import as_group, as_node, as_pod, node, pod
from phalanx.kube.api.reflector import Changed, Listed
from phalanx.kube.binder import JOB_ANNOTATION, Bound
from phalanx.kube.gangs.groups import PLUGINS, GroupRef
from phalanx.kube.mirror import NODES, PODS, Mirror
from phalanx.kube.objects.meta import Metadata
from phalanx.kube.objects.pod import Pod
from phalanx.kube.scheduler import Scheduler
from phalanx.kube.settings import Settings


class Notebook:
    """Takes down what the scheduler asks of the API server, and does nothing."""

    def __init__(self) -> None:
        self.binds: list[tuple[str, int, dict[str, str]]] = []
        self.evictions: list[tuple[str, int, list[str], list[str]]] = []
        self.deleted: list[str] = []
        self.lines: dict[str, str] = {}
        self.groups: dict[str, str] = {}

    def bind(self, job: str, attempt: int, places: tuple[tuple[Pod, str], ...]) -> None:
        self.binds.append((job, attempt, {pod.metadata.name: node for pod, node in places}))

    def evict(self, job: str, attempt: int, pods: Iterable[Pod], gone: Iterable[Pod]) -> None:
        names = [pod.metadata.name for pod in pods], [pod.metadata.name for pod in gone]
        self.evictions.append((job, attempt, *names))

    def delete(self, pods: Iterable[Pod]) -> None:
        self.deleted += [pod.metadata.name for pod in pods]

    def pending(self, pod: Pod, message: str) -> None:
        self.lines[pod.metadata.name] = message

    def group_pending(self, group: GroupRef, metadata: Metadata, message: str) -> None:
        self.groups[group.name] = message

    def group_started(self, group: GroupRef, metadata: Metadata) -> None:
        self.groups.pop(group.name, None)

    def preempted(self, pod: Pod, message: str) -> None:
        pass

    def forget(self, uid: str) -> None:
        pass

    def conflicts(self, queues: Any, conflicts: Any) -> None:
        pass


class Site:
    """A scheduler, what it asked for, and what the API server would say."""

    def __init__(
        self,
        nodes: int | Iterable[dict[str, Any]] = 2,
        pods: Iterable[Pod] = (),
        groups: Iterable[dict[str, Any]] = (),
        others_below: int | None = None,
    ) -> None:
        self.now = 1_000_000
        self.asked = Notebook()
        self.mirror = Mirror("phalanx", others_below)
        written = [node(f"n{i}") for i in range(nodes)] if isinstance(nodes, int) else nodes
        self.mirror.take(Listed(NODES, tuple(map(as_node, written))))
        self.mirror.take(Listed(PODS, tuple(pods)))
        self.mirror.take(Listed(PLUGINS, tuple(map(as_group, groups))))
        self.scheduler = Scheduler(self.mirror, self.asked, self.asked, Settings())  # type: ignore[arg-type]
        self.journal = io.BytesIO()
        self.scheduler.begin(self.now, self.journal)
        self.turn()

    def turn(self) -> None:
        for _ in range(10):
            self.now += 1
            self.scheduler.turn(self.now)
            if not self.scheduler.is_due:
                return
        raise AssertionError("the scheduler comes to no rest")

    def say(self, *pods: Pod, gone: bool = False) -> None:
        for each in pods:
            self.mirror.take(Changed(PODS, each, gone))
        self.turn()

    def bound(self, error: str = "", undone: tuple[str, ...] = ()) -> None:
        """The binder has carried out what it was asked for last."""
        job, attempt, places = self.asked.binds[-1]
        keys = tuple(f"default/{name}" for name in places)
        self.scheduler.answer(Bound(job, attempt, keys, error, tuple(f"default/{name}" for name in undone)))
        self.turn()

    @property
    def state(self) -> Any:
        assert self.scheduler.engine is not None
        return self.scheduler.engine.state


def gang(count: int, gpus: int = 8) -> tuple[Pod, ...]:
    return tuple(as_pod(pod(f"g{i}", gpus, "g")) for i in range(count))


def on(each: Pod, where: str, phase: str = "Running", job: str = "") -> Pod:
    """A pod after it was bound."""
    metadata = msgspec.structs.replace(each.metadata, annotations={JOB_ANNOTATION: job} if job else None)
    return msgspec.structs.replace(
        each,
        metadata=metadata,
        spec=msgspec.structs.replace(each.spec, node_name=where),
        status=msgspec.structs.replace(each.status, phase=phase),
    )
