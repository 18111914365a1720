"""The fleet of the speed benchmarks: a cluster with all that makes placing slow, and jobs that ask for all of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

from phalanx.cluster.cluster import Cluster, Node, Taint
from phalanx.workload.gang import ANYWHERE, Gang, Role, Task, Topology
from phalanx.workload.job import Job
from phalanx.workload.toleration import Toleration

GPUS = 8
NODES_PER_RACK = 16
RACKS_PER_POD = 16
GPU_TYPES = (("H100", 80.0), ("A100-80", 80.0), ("V100", 32.0))
"""A rack holds one type; racks take turns."""

DRAINED_SHARE = 0.05
POOLED_SHARE = 0.2
"""Nodes that carry a pool's label and taint."""
SCARCE_SHARE = 0.1
"""Nodes whose CPUs (one half of them) or memory (the other half) run out before their GPUs do."""
POOLS = ("vision", "speech")

CPUS_MILLI, CPUS_SCARCE_MILLI = 128_000, 32_000
MEMORY_MB, MEMORY_SCARCE_MB = 1_024_000, 256_000

SIZES = (1, 1, 1, 2, 2, 4, 4, 8, 8, 16, 32, 64)
RACK_SHARE = 1 / 3
SHAPES = 100
QUEUES = (("production", 200), ("research", 100), ("students", 100), ("spare", 0))
"""Four queues and their priorities: with the shapes above, 400 kinds of waiting jobs."""


def fleet(nodes: int, rng: Random) -> Cluster:
    """A cluster of `nodes` nodes of 8 GPUs in racks of 16 and pods of 16 racks."""
    return Cluster(tuple(_node(i, rng) for i in range(nodes)), ("pod", "rack", "node"))


def _node(i: int, rng: Random) -> Node:
    rack = i // NODES_PER_RACK
    gpu_type, memory_gb = GPU_TYPES[rack % len(GPU_TYPES)]
    node = Node(
        name=f"n{i}",
        path=(f"p{rack // RACKS_PER_POD}", f"r{rack}"),
        gpus=GPUS,
        gpu_type=gpu_type,
        gpu_memory_gb=memory_gb,
        cpus_milli=CPUS_MILLI,
        memory_mb=MEMORY_MB,
        nics=GPUS,
    )
    if rng.random() < POOLED_SHARE:
        pool = rng.choice(POOLS)
        node = replace(node, labels=(("pool", pool),), taints=(Taint("pool", pool),))
    scarce = rng.random()
    if scarce < SCARCE_SHARE / 2:
        return replace(node, cpus_milli=CPUS_SCARCE_MILLI)
    if scarce < SCARCE_SHARE:
        return replace(node, memory_mb=MEMORY_SCARCE_MB)
    return node


def drained(cluster: Cluster, rng: Random) -> list[str]:
    """Names of the nodes that are being drained."""
    return [node.name for node in cluster.nodes if rng.random() < DRAINED_SHARE]


@dataclass(frozen=True, slots=True)
class Jobs:
    """An endless stream of jobs of 1 to 64 GPUs, in a hundred shapes."""

    rng: Random
    shapes: tuple[Job, ...]

    @classmethod
    def of(cls, rng: Random) -> Jobs:
        """A stream with shapes of its own."""
        return cls(rng, tuple(_shape(rng, SIZES[i % len(SIZES)]) for i in range(SHAPES)))

    def __iter__(self) -> Iterator[Job]:
        number = 0
        while True:
            queue, priority = self.rng.choice(QUEUES)
            yield replace(self.rng.choice(self.shapes), id=str(number), queue=queue, priority=priority)
            number += 1


def _shape(rng: Random, gpus: int) -> Job:
    """Most name a GPU type; some tolerate a pool's taint, and half of those want nothing else.

    No rack has enough nodes of one pool for a large gang, so what must lie in one rack stays out of the pools.
    """
    each = min(gpus, GPUS)
    in_rack = rng.random() < RACK_SHARE
    task = Task(
        gpus=each,
        gpu_types=(rng.choice(GPU_TYPES)[0],) if rng.random() < 0.7 else (),
        cpus_milli=rng.choice((4_000, 8_000, 12_000)) * each,
        memory_mb=rng.choice((16_000, 64_000, 100_000)) * each,
    )
    chance = 1.0 if in_rack and gpus > GPUS else rng.random()
    pool = rng.choice(POOLS)
    return Job(
        id="",
        gang=gang_of(task, gpus // each, Topology("rack") if in_rack else ANYWHERE),
        node_selector=(("pool", pool),) if chance < 0.1 else (),
        tolerations=(Toleration("pool", pool),) if chance < 0.2 else (),
    )


def gang_of(task: Task, count: int, topology: Topology = ANYWHERE) -> Gang:
    """`count` equal tasks."""
    return Gang((Role(replicas_min=count, replicas_max=count, task=task),), topology)


Thing = TypeVar("Thing")


def take(things: list[Thing], rng: Random) -> Thing:
    """Takes one out at random; the rest may change their order."""
    at = rng.randrange(len(things))
    things[at], things[-1] = things[-1], things[at]
    return things.pop()
