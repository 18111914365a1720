"""This machine as a cluster: its real GPUs on one node, or as many pretended nodes and GPUs as one likes."""

from __future__ import annotations

import os
import socket

from phalanx.backends.local.gpus import Gpu, find_gpus
from phalanx.cluster.catalogue import UnknownAccelerator, accelerator
from phalanx.cluster.cluster import DEFAULT_POLICY, Cluster, Node
from phalanx.errors import PhalanxError

PRETENDED_NODES, PRETENDED_GPUS = 2, 4
PRETENDED_TYPE, PRETENDED_MEMORY_GB = "H100", 80.0
PRETENDED_CPUS_PER_GPU_MILLI, PRETENDED_MEMORY_PER_GPU_MB = 16_000, 128 * 1024


class MachineError(PhalanxError):
    """A wish that this machine cannot be made to fit."""


def local_cluster(nodes: int | None = None, gpus: int | None = None) -> Cluster:
    """The cluster that this machine is, or pretends to be. GPUs are per node.

    With real GPUs and no wish, it is one node that has them. Pretended nodes pretend their CPUs and memory too: what
    they run shares this machine, and nobody would learn anything from a job that waits for CPUs here.
    """
    found = find_gpus()
    if found and nodes in (None, 1) and (gpus is None or gpus <= len(found)):
        return Cluster((_real_node(found[:gpus]),), policy=DEFAULT_POLICY, name=socket.gethostname())
    if nodes is None and gpus == 0:
        return Cluster((_real_node(()),), policy=DEFAULT_POLICY, name=socket.gethostname())
    count, each = PRETENDED_NODES if nodes is None else nodes, PRETENDED_GPUS if gpus is None else gpus
    if count < 1 or each < 0:
        raise MachineError(f"--nodes {count} --gpus {each}: expected at least one node, and no fewer than 0 GPUs")
    pretended = tuple(_pretended_node(f"n{i}", each) for i in range(count))
    return Cluster(pretended, policy=DEFAULT_POLICY, name="pretended")


def device_names(cluster: Cluster) -> dict[str, tuple[str, ...]]:
    """What CUDA calls the devices of each node; nothing for those that are pretended."""
    found = find_gpus()
    here = [node for node in cluster.nodes if node.name == socket.gethostname()]
    return {node.name: tuple(gpu.uuid for gpu in found[: node.gpus]) for node in here if found}


def _real_node(gpus: tuple[Gpu, ...]) -> Node:
    return Node(
        socket.gethostname(),
        gpus=len(gpus),
        gpu_type=_type_of(gpus[0].name) if gpus else "",
        gpu_memory_gb=gpus[0].memory_mb / 1024 if gpus else 0.0,
        cpus_milli=1000 * len(os.sched_getaffinity(0)),
        memory_mb=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20,
    )


def _pretended_node(name: str, gpus: int) -> Node:
    share = max(gpus, 1)
    return Node(
        name,
        gpus=gpus,
        gpu_type=PRETENDED_TYPE if gpus else "",
        gpu_memory_gb=PRETENDED_MEMORY_GB if gpus else 0.0,
        cpus_milli=share * PRETENDED_CPUS_PER_GPU_MILLI,
        memory_mb=share * PRETENDED_MEMORY_PER_GPU_MB,
    )


def _type_of(name: str) -> str:
    """The catalogue's name of a GPU that the driver calls `NVIDIA A100-SXM4-80GB`; else the driver's."""
    words = name.replace("NVIDIA", "").strip()
    for candidate in (words, *words.replace("-", " ").split()):
        try:
            return accelerator(candidate).name
        except UnknownAccelerator:
            continue
    return words
