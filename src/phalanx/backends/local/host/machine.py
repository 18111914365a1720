"""This machine as a cluster: one node with the GPUs it has, or as many simulated nodes and GPUs as are asked for."""

from __future__ import annotations

import os
import socket

from phalanx.backends.local.host.gpus import DriverError, Gpu, find_gpus
from phalanx.cluster.catalogue import UnknownAccelerator, accelerator
from phalanx.cluster.cluster import DEFAULT_POLICY, Cluster, Node
from phalanx.errors import PhalanxError

SIMULATED_NODES, SIMULATED_GPUS = 2, 4
SIMULATED_TYPE, SIMULATED_MEMORY_GB = "H100", 80.0
SIMULATED_CPUS_PER_GPU_MILLI, SIMULATED_MEMORY_PER_GPU_MB = 16_000, 128 * 1024
DEVICES_MAX = 64
"""More GPUs than one machine has."""


class MachineError(PhalanxError):
    """A wish that this machine cannot be made to fit."""


def cluster_for(nodes: int | None, gpus: int | None) -> Cluster:
    """The cluster of `up --nodes --gpus`: this machine where neither says otherwise, else simulated nodes, which only a
    machine without GPUs has without a further word.
    """
    if nodes is None and not gpus:
        return local_cluster() if gpus is None else cpu_cluster()
    found = find_gpus()
    if found:
        asked = " ".join(
            f"{option} {count}" for option, count in (("--nodes", nodes), ("--gpus", gpus)) if count is not None
        )
        raise MachineError(
            f"{asked}: this machine has {len(found)} GPUs ({found[0].name}); leave out --nodes and --gpus to run on "
            "them, or add --simulate for simulated nodes in their place"
        )
    return simulated_cluster(nodes, gpus)


def local_cluster() -> Cluster:
    """This machine: one node with all its GPUs, if it has any."""
    return _of_this_machine(find_gpus())


def cpu_cluster() -> Cluster:
    """This machine without its GPUs, whether or not they could be used."""
    return _of_this_machine(())


def simulated_cluster(nodes: int | None = None, gpus: int | None = None) -> Cluster:
    """Nodes that no machine is behind, each with so many GPUs. Their CPUs and memory are simulated too: tasks share
    this machine, and no user would learn anything from a job that waits for CPUs here.
    """
    count, each = SIMULATED_NODES if nodes is None else nodes, SIMULATED_GPUS if gpus is None else gpus
    made = tuple(_simulated_node(f"n{i}", each) for i in range(count))
    return Cluster(made, policy=DEFAULT_POLICY, name="simulated")


def real_nodes(cluster: Cluster) -> tuple[str, ...]:
    """The nodes of a cluster that are machines: that of this machine's name, if it has the GPUs it says."""
    here = [node for node in cluster.nodes if node.name == socket.gethostname()]
    return tuple(node.name for node in here if not node.gpus or find_gpus())


def device_names(cluster: Cluster) -> dict[str, tuple[str, ...]]:
    """What CUDA calls the devices of each node; nothing for those that are simulated."""
    here = [node for node in cluster.nodes if node.name == socket.gethostname() and node.gpus]
    found = find_gpus() if here else ()
    return {node.name: tuple(gpu.uuid for gpu in found[: node.gpus]) for node in here if found}


def gpus_here() -> int:
    """How many GPUs this machine has: CUDA calls none of them by this number or one above it."""
    try:
        return len(find_gpus())
    except DriverError:
        return DEVICES_MAX


def _of_this_machine(gpus: tuple[Gpu, ...]) -> Cluster:
    return Cluster((_real_node(gpus),), policy=DEFAULT_POLICY, name=socket.gethostname())


def _real_node(gpus: tuple[Gpu, ...]) -> Node:
    return Node(
        socket.gethostname(),
        gpus=len(gpus),
        gpu_type=_type_of(gpus[0].name) if gpus else "",
        gpu_memory_gb=gpus[0].memory_mb / 1024 if gpus else 0.0,
        cpus_milli=1000 * len(os.sched_getaffinity(0)),
        memory_mb=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20,
    )


def _simulated_node(name: str, gpus: int) -> Node:
    share = max(gpus, 1)
    return Node(
        name,
        gpus=gpus,
        gpu_type=SIMULATED_TYPE if gpus else "",
        gpu_memory_gb=SIMULATED_MEMORY_GB if gpus else 0.0,
        cpus_milli=share * SIMULATED_CPUS_PER_GPU_MILLI,
        memory_mb=share * SIMULATED_MEMORY_PER_GPU_MB,
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
