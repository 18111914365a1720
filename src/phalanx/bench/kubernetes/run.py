"""The measurements: how fast pods are bound, how soon a gang is, what is bound in part, and clusters of many nodes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from phalanx.bench.kubernetes.bindings import Bindings, watching
from phalanx.bench.kubernetes.contender import (
    OURS,
    PLAIN,
    Contender,
    contenders,
    scheduling,
    scheduling_by_the_clock,
)
from phalanx.bench.kubernetes.control_plane import ControlPlane, programs
from phalanx.bench.kubernetes.kwok import LISTS_IN_PAGES, NodesOfKwok, nodes_of_kwok
from phalanx.bench.kubernetes.objects import GROUPS, NODES, PODS, Manifest, clear, create, group, node, pod
from phalanx.bench.kubernetes.turn import turn_s
from phalanx.bench.row import Row, Tell, quantile, row
from phalanx.kube.api.client import Client

GANG = 8
"""Pods of a gang, as many as a node has GPUs."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured. `drained` and `backlog` are how many gangs of 8 pods, and the GPUs of each pod."""

    nodes: int
    drained: tuple[int, int]
    backlog: tuple[int, int]
    rate_nodes: int
    gangs_s: float
    seconds: int
    crowded_nodes: int
    large_nodes: int
    large_gang: int
    within_s: float


FULL = Size(1000, (100, 8), (1000, 1), 1000, 3.0, 30, 100, 5000, 512, 300.0)
QUICK = Size(4, (2, 1), (4, 1), 4, 3.0, 1, 2, 20, 4, 60.0)


STARTS_WITHIN_S = 540.0
"""How long thousands of nodes may take to get their first leases."""


@contextmanager
def running(nodes: int, idle: bool = False) -> Iterator[tuple[ControlPlane, Client]]:
    """A control plane for some measurements, with so many nodes that kwok runs, and a client of it. Nothing runs nodes
    that are idle: the leases of thousands take more than a machine has that has to run all this.
    """
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-kube-") as folder:
        plane = ControlPlane(Path(folder), programs(), options=(LISTS_IN_PAGES,))
        try:
            plane.start()
            with plane.client() as api:
                if idle:
                    create(api, NODES, (node(f"n{i:05}") for i in range(nodes)))
                    yield plane, api
                    return
                with nodes_of_kwok(plane, api, NodesOfKwok(nodes), STARTS_WITHIN_S):
                    yield plane, api
        finally:
            plane.stop()


def drain(size: Size, tell: Tell) -> list[Row]:
    """Gangs of whole nodes are there before the scheduler is: pods bound a second, from its start to the last bind."""
    return _rates(size, *size.drained, tell)


def backlog(size: Size, tell: Tell) -> list[Row]:
    """The same with ten times as many gangs, whose pods have one GPU each."""
    return _rates(size, *size.backlog, tell)


def _rates(size: Size, gangs: int, gpus: int, tell: Tell) -> list[Row]:
    what = f"drain: {size.nodes} nodes, {gangs} gangs of {GANG} pods of {gpus} GPUs"
    rates: dict[str, float | None] = {}
    with running(size.nodes) as (plane, api):
        for contender in contenders(plane):
            tell(f"{what}: {contender.title}")
            rate = rates[contender.title] = _drained(plane, api, contender, gangs, gpus, size.within_s)
            tell(f"{rate:.0f} pods/s" if rate is not None else f"not all were bound within {size.within_s:g} s")
            clear(api, PODS, GROUPS)
    rows = [row(f"{what}: {title}", rate, "pods/s") for title, rate in rates.items()]
    ours, theirs = rates[OURS.title], rates.get(PLAIN.title)
    if ours and theirs:
        rows.append(row(f"{what}: rate of kube-scheduler / phalanx", theirs / ours, "ratio", 1.0))
    return rows


def _drained(
    plane: ControlPlane, api: Client, contender: Contender, gangs: int, gpus: int, within_s: float
) -> float | None:
    _create_gangs(api, contender, [f"g{i}" for i in range(gangs)], gpus)
    with watching(api) as bindings:
        # From the first bind on would be too kind to one that decides on all before it binds any.
        began = time.monotonic()
        with scheduling(plane, contender):
            if not bindings.wait_for(gangs * GANG, within_s):
                return None
    return len(bindings.at_s) / (max(bindings.at_s.values()) - began)


def share(size: Size, tell: Tell) -> list[Row]:
    """What part of the processor time of ours goes to HTTP, to JSON and to turns while it drains the same gangs."""
    gangs, gpus = size.drained
    what = f"share: {size.nodes} nodes, {gangs} gangs of {GANG} pods of {gpus} GPUs"
    with running(size.nodes) as (plane, api):
        tell(what)
        _create_gangs(api, OURS, [f"g{i}" for i in range(gangs)], gpus)
        with watching(api) as bindings:
            began = time.monotonic()
            with scheduling_by_the_clock(plane) as end:
                is_bound = bindings.wait_for(gangs * GANG, size.within_s)
                took_s = time.monotonic() - began
                times = end()
        clear(api, PODS, GROUPS)
    named = {"HTTP": times.http, "JSON": times.json, "turns": times.turns}
    named["the rest, of which the start is the most"] = times.process - sum(named.values())
    return [
        row(f"{what}: processor time of phalanx a second", times.process / took_s if is_bound else None, "cores"),
        *(row(f"{what}: of that {name}", 100 * spent / times.process, "%") for name, spent in named.items()),
    ]


def latency(size: Size, tell: Tell) -> list[Row]:
    """Gangs come one after the other: how long from when the last pod of one was created until all are bound."""
    rows = []
    with running(size.rate_nodes) as (plane, api):
        for contender in contenders(plane):
            tell(f"latency: {size.gangs_s:g} gangs a second: {contender.title}")
            taken = _latencies(plane, api, contender, size)
            clear(api, PODS, GROUPS)
            what = f"latency at {size.gangs_s:g} gangs of {GANG} pods a second, {size.rate_nodes} nodes"
            for share, target in ((0.5, 0.1), (0.99, 0.3)):
                value = quantile(taken, share)
                goal = target if contender is OURS else None
                rows.append(row(f"{what}: {contender.title}, p{share * 100:g}", value, "s", goal))
    return rows


def _latencies(plane: ControlPlane, api: Client, contender: Contender, size: Size) -> list[float]:
    count = int(size.gangs_s * size.seconds)
    created: dict[str, float] = {}
    with watching(api) as bindings, scheduling(plane, contender):
        _warm_up(api, bindings, contender, size.within_s)
        began = time.monotonic()
        for i in range(count):
            time.sleep(max(began + i / size.gangs_s - time.monotonic(), 0.0))
            _create_gangs(api, contender, [f"g{i}"], 1)
            created[f"g{i}"] = time.monotonic()
        bindings.wait_for(count * GANG, size.within_s)
    return [
        max(max(bindings.at_s[f"{name}-{i}"] for i in range(GANG)) - at, 0.0)
        for name, at in created.items()
        if _bound(bindings, name) == GANG
    ]


def crowded(size: Size, tell: Tell) -> list[Row]:
    """Gangs that ask for 120 % of the GPUs, their pods in turns: how many are bound in part, and what is unused."""
    rows = []
    with running(size.crowded_nodes) as (plane, api):
        gangs = -(-size.crowded_nodes * 12 // 10)
        for contender in contenders(plane):
            tell(f"crowded: {gangs} gangs for {size.crowded_nodes} nodes: {contender.title}")
            names = [f"g{i}" for i in range(gangs)]
            with watching(api) as bindings, scheduling(plane, contender):
                # What is there before a scheduler has listed it comes in the order of names, not in that of creation.
                _warm_up(api, bindings, contender, size.within_s)
                _create_gangs(api, contender, names, 1, in_turns=True)
                bindings.wait_for_rest(5.0, size.within_s)
            clear(api, PODS, GROUPS)
            partial = sum(0 < _bound(bindings, name) < GANG for name in names)
            used = len(bindings.at_s) / (8 * size.crowded_nodes)
            what = f"crowded: {gangs} gangs of {GANG} GPUs for {size.crowded_nodes} nodes: {contender.title}"
            is_ours = contender is OURS
            rows.append(row(f"{what}, bound in part", partial, "gangs", 0.0 if is_ours else None))
            rows.append(row(f"{what}, GPUs unused", 100 * (1 - used), "%", 0.0 if is_ours else None))
    return rows


def large(size: Size, tell: Tell) -> list[Row]:
    """Many nodes: from the start of the process until it schedules, its memory, and a gang on many of them."""
    with running(size.large_nodes, idle=True) as (plane, api):
        tell(f"large: {size.large_nodes} nodes")
        with watching(api) as bindings, scheduling(plane, OURS) as (pid, ready_s):
            memory_mb = _resident_mb(pid)
            tell(f"large: a gang of {size.large_gang} pods")
            create(api, GROUPS, [group("large", size.large_gang)])
            create(api, PODS, (pod(f"large-{i}", 8, OURS.scheduler, "large") for i in range(size.large_gang)))
            created = time.monotonic()
            is_bound = bindings.wait_for(size.large_gang, size.within_s)
            moments = list(bindings.at_s.values())
        turn = turn_s(api, size.large_nodes, size.large_gang)
    what = f"large: {size.large_nodes} nodes"
    first = min(moments) - created if is_bound else None
    return [
        row(f"{what}, from the start of the process until it schedules", ready_s, "s", 20.0),
        row(f"{what}, memory", memory_mb, "MB"),
        row(f"{what}, CPU time of the turn that places a gang of {size.large_gang} nodes", turn, "s", 0.1),
        row(f"{what}, a gang of {size.large_gang} nodes: from the last pod to the first bind", first, "s"),
        row(f"{what}, the same to the last bind", max(moments) - created if is_bound else None, "s"),
    ]


def _create_gangs(api: Client, contender: Contender, names: list[str], gpus: int, in_turns: bool = False) -> None:
    """Creates gangs of 8 pods: one after the other, or the pods of all in turns."""
    if contender.has_gangs:
        create(api, GROUPS, (group(name, GANG) for name in names))

    def member(name: str, index: int) -> Manifest:
        return pod(f"{name}-{index}", gpus, contender.scheduler, name if contender.has_gangs else "")

    if in_turns:
        create(api, PODS, (member(name, index) for index in range(GANG) for name in names))
    else:
        create(api, PODS, (member(name, index) for name in names for index in range(GANG)))


def _warm_up(api: Client, bindings: Bindings, contender: Contender, within_s: float) -> None:
    """Returns when a scheduler has bound a pod, which is deleted again."""
    create(api, PODS, [pod("warm", 1, contender.scheduler)])
    bindings.wait_for(1, within_s)
    api.delete(f"{PODS}/warm", {"gracePeriodSeconds": 0})
    bindings.forget("warm")


def _bound(bindings: Bindings, name: str) -> int:
    return sum(f"{name}-{i}" in bindings.at_s for i in range(GANG))


def _resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0
