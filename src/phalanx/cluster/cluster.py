"""The cluster as its owner describes it: nodes, the domains above and inside them, and the links between."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from phalanx.cluster.cells import CellSite
from phalanx.cluster.link import Link as Link
from phalanx.cluster.maintenance import Maintenance
from phalanx.cluster.queues import Queue, Quota
from phalanx.cluster.recovery import Recovery

NODE = "node"
"""The one level every cluster has. Levels before it are domains of nodes, levels after it split a node."""

CLUSTER = "cluster"
"""The level above all: everything lies in it."""

DEFAULT_POLICY = "phalanx"
"""What a cluster is decided by if its owner does not say. A record that does not say is older, and means `fifo`."""


class Health(StrEnum):
    """Health of a device or node. Only `healthy` takes new work; `failed` ends what runs there. A `spare` node is well,
    and kept for jobs that lose a node: the State says which are, and no event does.
    """

    HEALTHY = "healthy"
    SPARE = "spare"
    SUSPECT = "suspect"
    DRAINING = "draining"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Taint:
    """What keeps jobs off a node unless they tolerate it."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Node:
    """One machine. `path` names the domain it lies in at each level above `node`, outermost first.

    `split` says into how many equal parts each level inside the node divides it: (("socket", 2), ("switch", 4)).
    """

    name: str
    path: tuple[str, ...] = ()
    gpus: int = 0
    gpu_type: str = ""
    gpu_memory_gb: float = 0.0
    cpus_milli: int = 0
    memory_mb: int = 0
    nics: int = 0
    storage_gb: tuple[tuple[str, int], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    split: tuple[tuple[str, int], ...] = ()
    spot: bool = False
    price_usd_h: float = 0.0

    def __post_init__(self) -> None:
        for name in ("gpus", "cpus_milli", "memory_mb", "nics"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise ValueError(f"node {self.name}: {name} must be a whole number of at least 0, got {value!r}")
        for name in ("gpu_memory_gb", "price_usd_h"):
            value = getattr(self, name)
            # Written so that NaN, which fails every comparison, is refused too.
            if not isinstance(value, int | float) or not 0 <= value < inf:
                raise ValueError(f"node {self.name}: {name} must be a finite number of at least 0, got {value!r}")


@dataclass(frozen=True, slots=True)
class Overcommit:
    """How far the sum of limits may exceed a node's CPUs and memory. GPUs and RDMA are never overcommitted."""

    cpus: float = 1.0
    memory: float = 1.0


@dataclass(frozen=True, slots=True)
class StorageTier:
    """A tier of storage that jobs can use: `scope` is the level that shares it (node for a local disk)."""

    name: str
    scope: str = NODE
    read_gb_s: float = 0.0
    write_gb_s: float = 0.0
    capacity_gb: int = 0


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster. `levels` run from the outermost to the innermost and contain `node`; `links` is per level.

    Every `defragment_ms` running jobs may be moved for a pending one; never if that is 0. A job that has waited longer
    than `patience_ms`, or that of its queue, is passed no more; 0 is never, None that nothing is said of it.
    `links["rack"]` joins the nodes of one rack, `links["node"]` the devices of one node, `links["cluster"]` all.
    Without `queues` jobs may name any queue, and none has a quota. With `cells` queues are virtual clusters that own
    some of the hardware. With `recovery` jobs that lose a node go on where they were.
    """

    nodes: tuple[Node, ...]
    levels: tuple[str, ...] = (NODE,)
    links: dict[str, Link] = field(default_factory=dict)
    overcommit: Overcommit = Overcommit()
    storage: tuple[StorageTier, ...] = ()
    policy: str = "fifo"
    name: str = "cluster"
    queues: tuple[Queue, ...] = ()
    maintenance: tuple[Maintenance, ...] = ()
    defragment_ms: int = 0
    cells: CellSite | None = None
    patience_ms: int | None = None
    recovery: Recovery | None = None

    def __post_init__(self) -> None:
        if NODE not in self.levels:
            raise ValueError(f"the levels of a cluster contain {NODE!r}, got {self.levels!r}")
        most = self.levels.index(NODE)
        for node in self.nodes:
            if len(node.path) > most:
                above = ", ".join(self.levels_above) or "none"
                raise ValueError(f"node {node.name}: path {node.path!r} names more levels than are above it: {above}")

    @property
    def levels_above(self) -> tuple[str, ...]:
        """Levels of domains that hold nodes, outermost first."""
        return self.levels[: self.levels.index(NODE)]

    @property
    def levels_inside(self) -> tuple[str, ...]:
        """Levels that split a node, outermost first."""
        return self.levels[self.levels.index(NODE) + 1 :]

    @property
    def gpus(self) -> int:
        """All GPUs of the cluster."""
        return sum(node.gpus for node in self.nodes)

    @property
    def storage_tiers(self) -> tuple[str, ...]:
        """Storage tiers that jobs may name: those that nodes share and those that they have themselves."""
        local = (tier for node in self.nodes for tier, _ in node.storage_gb)
        return tuple(dict.fromkeys((*(tier.name for tier in self.storage), *local)))

    @property
    def total(self) -> Quota:
        """What there is to be shared out among queues."""
        return Quota(
            1000 * self.gpus,
            sum(node.cpus_milli for node in self.nodes),
            sum(node.memory_mb for node in self.nodes),
        )


def flat(nodes: int, gpus: int, gpu_type: str = "", gpu_memory_gb: float = 0.0) -> Cluster:
    """A cluster of equal nodes with no domains above them, named n0, n1, …; fewer than 0 of them raise ValueError."""
    if type(nodes) is not int or nodes < 0:
        raise ValueError(f"nodes must be a whole number of at least 0, got {nodes!r}")
    return Cluster(tuple(Node(f"n{i}", (), gpus, gpu_type, gpu_memory_gb) for i in range(nodes)))


def commonest_type(cluster: Cluster) -> str:
    """The GPU type that a cluster has most of: durations of jobs that name no type are taken to be measured on it."""
    gpus: dict[str, int] = {}
    for node in cluster.nodes:
        gpus[node.gpu_type] = gpus.get(node.gpu_type, 0) + node.gpus
    return max(gpus, key=lambda name: gpus[name], default="")
