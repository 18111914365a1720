"""What a gang holds of Ray: placement groups whose bundles are pinned to the nodes of the plan.

A gang of one size is one group. Members of an elastic gang have a group each: a group can only be given back whole.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import ray

from phalanx.backends.local.attempt_files import TaskOrder
from phalanx.backends.ray.driver.cluster import RayCluster, RayNode, Refused, Used, answer_of

T = TypeVar("T")

STOPPED = "stopped while it was starting"

RESERVE_S = 20.0
"""How long Ray may take to reserve what is free by the plan: milliseconds, unless other work of Ray holds it."""

DEVICES_S = 120.0
"""How long a node may take to look which GPUs were given: a process for each bundle, after those of other gangs."""

LOOK_S = 1.0


class Around(NamedTuple):
    """What a reservation asks of its gang: whether it is not wanted any more, and to put down the names of groups."""

    is_off: Callable[[], bool]
    note: Callable[[], None]


class Reservation:
    """The placement groups of one attempt. `ranks` of a group are those of its bundles, in order."""

    def __init__(self, cluster: RayCluster, name: str, ranks: dict[str, list[int]] | None = None) -> None:
        self._cluster = cluster
        self._name = name
        self.ranks = ranks if ranks is not None else {}

    async def add(self, tasks: Sequence[TaskOrder], nodes: dict[str, RayNode], apart: bool, around: Around) -> None:
        """Reserves what tasks need on their nodes, all of it or nothing."""
        sets = [[task] for task in tasks] if apart else [list(tasks)]
        # A rank that left and comes again must not meet the group that is on its way out.
        added = [f"{self._name}/{each[0]['rank']}@{time.time_ns() // 1_000_000}" for each in sets]
        self.ranks |= {name: [task["rank"] for task in each] for name, each in zip(added, sets, strict=True)}
        around.note()
        try:
            for name, each in zip(added, sets, strict=True):
                await self._cluster.call(partial(_make, name, each, nodes))
            for name, each in zip(added, sets, strict=True):
                await self._await(name, each, around.is_off)
        except BaseException:
            for name in added:
                await self._remove(name)
            raise

    def holds(self, ranks: Sequence[int]) -> bool:
        """Whether all of these have a place in a group already."""
        held = {rank for members in self.ranks.values() for rank in members}
        return all(rank in held for rank in ranks)

    def of_tasks(self, tasks: Sequence[TaskOrder]) -> dict[str, Used]:
        """What those of these tasks that have a place hold of each node."""
        held: dict[str, Used] = {}
        for task in tasks:
            if self.holds([task["rank"]]):
                before = held.get(task["node"], Used())
                gpus, cpus_milli = before.gpus + len(task["devices"]), before.cpus_milli + task["cpus_milli"]
                held[task["node"]] = Used(gpus, cpus_milli)
        return held

    async def devices(
        self, tasks: Sequence[TaskOrder], agents: dict[str, Any], is_off: Callable[[], bool]
    ) -> dict[int, list[int]]:
        """Which GPUs Ray gave to each rank."""
        by_rank = {task["rank"]: task for task in tasks}
        found: dict[int, list[int]] = {}
        for name, ranks in self.ranks.items():
            group = await self._cluster.call(partial(ray.util.get_placement_group, name))
            for node, agent in agents.items():
                asked = [
                    (bundle, len(by_rank[rank]["devices"]))
                    for bundle, rank in enumerate(ranks)
                    if rank in by_rank and by_rank[rank]["node"] == node and by_rank[rank]["devices"]
                ]
                if asked:
                    told = await _unless(is_off, answer_of(agent.do.remote("devices", group, asked), DEVICES_S))
                    found |= {ranks[bundle]: sorted(devices) for bundle, devices in told.items()}
        return found

    async def give_back(self, ranks: Sequence[int]) -> None:
        """Gives back the groups of which all members have left."""
        for name, members in list(self.ranks.items()):
            if all(rank in ranks for rank in members):
                await self._remove(name)

    async def give_all_back(self) -> None:
        """Gives everything back."""
        for name in list(self.ranks):
            await self._remove(name)

    async def _remove(self, name: str) -> None:
        await self._cluster.call(partial(_drop, name))
        self.ranks.pop(name, None)

    async def _await(self, name: str, tasks: Sequence[TaskOrder], is_off: Callable[[], bool]) -> None:
        group = await self._cluster.call(partial(ray.util.get_placement_group, name))
        until_s = time.monotonic() + RESERVE_S
        while not await self._cluster.call(partial(group.wait, LOOK_S)):
            if is_off():
                raise Refused(STOPPED)
            if time.monotonic() > until_s:
                where = ", ".join(dict.fromkeys(task["node"] for task in tasks))
                told = f"Ray did not reserve it on {where} within {RESERVE_S:.0f} s: other work of Ray may hold it"
                raise Refused(told, tasks[0]["node"])


async def _unless(is_off: Callable[[], bool], answer: Coroutine[Any, Any, T]) -> T:
    """An answer, unless it is not wanted any more."""
    waiting = asyncio.create_task(answer)
    while not (await asyncio.wait({waiting}, timeout=LOOK_S))[0]:
        if is_off():
            waiting.cancel()
            raise Refused(STOPPED)
    return waiting.result()


def _make(name: str, tasks: Sequence[TaskOrder], nodes: dict[str, RayNode]) -> None:
    ray.util.placement_group(
        [_bundle(task) for task in tasks],
        strategy="PACK",
        name=name,
        lifetime="detached",
        bundle_label_selector=[{"ray.io/node-id": nodes[task["node"]].id} for task in tasks],
    )


def _bundle(task: TaskOrder) -> dict[str, float]:
    wants = {
        "GPU": float(len(task["devices"])),
        "CPU": task["cpus_milli"] / 1000,
        "memory": task["memory_mb"] * 2.0**20,
    }
    # A bundle of nothing is refused.
    return {name: amount for name, amount in wants.items() if amount} or {"CPU": 0.001}


def _drop(name: str) -> None:
    try:
        group = ray.util.get_placement_group(name)
    except ValueError:
        return
    ray.util.remove_placement_group(group)
