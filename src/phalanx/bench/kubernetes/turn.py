"""One turn of the scheduler, in this process: from the pods of a gang being there to the binds being asked for."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from phalanx.bench.kubernetes.objects import Manifest, group, node, pod
from phalanx.kube.api.client import Client
from phalanx.kube.api.reflector import Changed, Listed
from phalanx.kube.binder import Answer, Binder
from phalanx.kube.gangs.groups import NATIVE
from phalanx.kube.mirror import NODES, PODS, Mirror
from phalanx.kube.objects.group import PodGroup
from phalanx.kube.objects.node import KubeNode
from phalanx.kube.objects.pod import Pod
from phalanx.kube.reporter import Reporter
from phalanx.kube.scheduler import Scheduler
from phalanx.kube.settings import Settings

TURNS = 5


def turn_s(api: Client, nodes: int, gang: int) -> float | None:
    """The CPU time of the quickest of a few turns that each place a gang on so many nodes; None if one did not.

    Nothing is bound: the binder may not write.
    """
    mirror = Mirror("phalanx")
    mirror.take(Listed(NODES, tuple(msgspec.convert(node(f"n{i:05}"), KubeNode) for i in range(nodes))))
    mirror.take(Listed(PODS, ()))
    binder, reporter = Binder(api, _ignore, _never), Reporter(api)
    scheduler = Scheduler(mirror, binder, reporter, Settings())
    try:
        scheduler.begin(_now_ms())
        scheduler.turn(_now_ms())
        taken = [_placed_s(scheduler, mirror, f"g{i}", gang) for i in range(min(TURNS, nodes // gang))]
    finally:
        binder.close()
        reporter.close()
    return None if None in taken else min(each for each in taken if each is not None)


def _placed_s(scheduler: Scheduler, mirror: Mirror, name: str, count: int) -> float | None:
    mirror.take(Changed(NATIVE, msgspec.convert(group(name, count), PodGroup)))
    for i in range(count):
        mirror.take(Changed(PODS, msgspec.convert(_received(pod(f"{name}-{i}", 8, "phalanx", name)), Pod)))
    before = time.thread_time()
    scheduler.turn(_now_ms())
    taken = time.thread_time() - before
    return taken if all(tracked.nodes for tracked in scheduler.roster.tracked.values()) else None


def _received(written: Manifest) -> dict[str, Any]:
    """A pod as the API server tells of it."""
    metadata = written["metadata"]
    return {**written, "metadata": {**metadata, "uid": metadata["name"], "creationTimestamp": "2026-01-01T00:00:00Z"}}


def _ignore(answer: Answer) -> None:
    pass


def _never() -> bool:
    return False


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
