"""Groups of equal nodes that can be had, and the file that they are read from."""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.cluster.cluster import Node
from phalanx.document import Field, Limits, read_document

FILE_LIMITS = Limits(text=1024 * 1024, values=10_000)
FILE_KEYS = ("version", "groups", "idle", "cool_down")
GROUP_KEYS = ("name", "min", "max", "gpus", "gpu_type", "gpu_memory_gb", "cpus", "memory_gb", "spot", "price", "labels")
GROUPS_MAX, NODES_MAX, LABELS_MAX = 100, 10_000, 100
IDLE_MS, COOL_DOWN_MS = 600_000, 120_000

LABEL = "ray.io/node-group"
"""The label by which a node tells its group; KubeRay names the group in the names of pods as well."""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes like `node`, from `least` to `most` of them. Spot nodes are only for jobs that may be preempted."""

    name: str
    node: Node
    least: int
    most: int

    def has(self, node: Node) -> bool:
        """Whether a node of the cluster is one of this group."""
        return dict(node.labels).get(LABEL) == self.name or f"-{self.name}-worker-" in node.name

    def example(self, number: int) -> Node:
        """A node that the group could have."""
        made = self.node
        return Node(
            f"{self.name}-to-come-{number}",
            made.path,
            gpus=made.gpus,
            gpu_type=made.gpu_type,
            gpu_memory_gb=made.gpu_memory_gb,
            cpus_milli=made.cpus_milli,
            memory_mb=made.memory_mb,
            labels=(*made.labels, (LABEL, self.name)),
            spot=made.spot,
            price_usd_h=made.price_usd_h,
        )


@dataclass(frozen=True, slots=True)
class Groups:
    """All groups. A node is given back once it was idle for `idle_ms`, and none for `cool_down_ms` after a change."""

    groups: tuple[NodeGroup, ...]
    idle_ms: int = IDLE_MS
    cool_down_ms: int = COOL_DOWN_MS


def read_groups(text: str, source: str) -> Groups:
    """Reads a file of groups. `source` names it in errors; nothing is opened."""
    fields = read_document(text, source, FILE_LIMITS).mapping(FILE_KEYS)
    fields.get("version", lambda version: version.integer(1, 1), 1)
    groups = fields.need("groups", lambda groups: tuple(map(_read_group, groups.items(1, GROUPS_MAX))))
    names = [group.name for group in groups]
    if len(set(names)) < len(names):
        raise fields["groups"].error("two groups have one name")
    return Groups(
        groups, fields.get("idle", Field.duration_ms, IDLE_MS), fields.get("cool_down", Field.duration_ms, COOL_DOWN_MS)
    )


def _read_group(field: Field) -> NodeGroup:
    fields = field.mapping(GROUP_KEYS)
    least = fields.get("min", lambda least: least.integer(0, NODES_MAX), 0)
    most = fields.need("max", lambda most: most.integer(0, NODES_MAX))
    if least > most:
        raise fields["min"].expected(f"at most `max`, which is {most}")
    name = fields.need("name", Field.name)
    node = Node(
        name,
        gpus=fields.get("gpus", lambda gpus: gpus.integer(0, 64), 0),
        gpu_type=fields.get("gpu_type", Field.name, ""),
        gpu_memory_gb=fields.get("gpu_memory_gb", lambda memory: memory.number(0, 1e6), 0.0),
        cpus_milli=fields.need("cpus", Field.cpus_milli),
        memory_mb=fields.need("memory_gb", Field.memory_mb),
        labels=fields.get("labels", lambda labels: labels.pairs(LABELS_MAX), ()),
        spot=fields.get("spot", Field.boolean, False),
        price_usd_h=fields.get("price", lambda price: price.number(0, 1e6), 0.0),
    )
    return NodeGroup(name, node, least, most)
