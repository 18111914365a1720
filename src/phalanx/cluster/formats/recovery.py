"""The `recovery` of a cluster file."""

from __future__ import annotations

from phalanx.cluster.cluster import CLUSTER, Cluster
from phalanx.cluster.recovery import Recovery
from phalanx.document import Field

RECOVERY_KEYS = ("spares", "per")
SPARES_MAX = 1_000_000


def read_recovery(field: Field, cluster: Cluster) -> Recovery:
    """Reads how many nodes of every domain are spares. A domain without other nodes would take no work at all."""
    fields = field.mapping(RECOVERY_KEYS)
    per = fields.get("per", lambda level: _read_level(level, cluster), CLUSTER)
    most = min(_sizes(cluster, per), default=0) - 1
    spares = fields.get("spares", lambda count: _read_count(count, per, most, cluster), 0)
    if spares and cluster.cells is not None:
        raise field.error("virtual clusters own their nodes: expected no spares beside them, got spares")
    return Recovery(spares, per)


def _read_level(field: Field, cluster: Cluster) -> str:
    levels = (CLUSTER, *cluster.levels_above)
    level = field.text()
    if level not in levels:
        raise field.expected(f"a level with nodes inside ({', '.join(levels)})")
    return level


def _read_count(field: Field, per: str, most: int, cluster: Cluster) -> int:
    spares = field.integer(0, SPARES_MAX)
    if spares > max(most, 0):
        what = "the cluster" if per == CLUSTER else f"the smallest {per}"
        raise field.expected(f"at most {max(most, 0)}: {what} has {most + 1} nodes with GPUs, and one is to take work")
    return spares


def _sizes(cluster: Cluster, per: str) -> list[int]:
    """How many nodes with GPUs each domain of a level has."""
    depth = 0 if per == CLUSTER else cluster.levels.index(per) + 1
    sizes: dict[tuple[str, ...], int] = {}
    for node in cluster.nodes:
        if node.gpus:
            sizes[node.path[:depth]] = sizes.get(node.path[:depth], 0) + 1
    return list(sizes.values())
