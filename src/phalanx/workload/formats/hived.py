"""HiveD's configuration file, and the annotation by which a pod says what it wants of HiveD."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from phalanx.document import Field, Limits, read_document
from phalanx.document.field import CPUS_MAX, nearest
from phalanx.workload.cells import (
    LEAF_LEVEL,
    CellError,
    CellSite,
    CellType,
    Chain,
    PhysicalSpec,
    Sku,
    VirtualClusterSpec,
    VirtualSpec,
    chain_of,
)
from phalanx.workload.formats.quantity import memory_mb

ANNOTATION = "hivedscheduler.microsoft.com/pod-scheduling-spec"

CONFIG_LIMITS = Limits(text=16 * 1024 * 1024, values=4_000_000)
TYPES_MAX = 10_000
CELLS_MAX = 200_000
CHILDREN_MAX = 100_000
CLUSTERS_MAX = 10_000
LEAVES_MAX = 100_000
PRIORITY_MIN, PRIORITY_MAX = -1, 1000

# What HiveD reads beside the cells concerns its own process; it is accepted and means nothing here.
OTHER_KEYS = (
    "kubeApiServerAddress",
    "kubeConfigFilePath",
    "webServerAddress",
    "forcePodBindThreshold",
    "waitingPodSchedulingBlockMilliSec",
)
CONFIG_KEYS = ("physicalCluster", "virtualClusters", "quotaExcludeVCs", *OTHER_KEYS)
PHYSICAL_KEYS = ("skuTypes", "gpuTypes", "cellTypes", "physicalCells")
CELL_KEYS = ("cellType", "cellAddress", "pinnedCellId", "cellChildren")
POD_KEYS = (
    "virtualCluster",
    "priority",
    "pinnedCellId",
    "leafCellType",
    "leafCellNumber",
    "gangReleaseEnable",
    "lazyPreemptionEnable",
    "ignoreK8sSuggestedNodes",
    "affinityGroup",
    "quota",
    "version",
)
# Names of HiveD before 0.3, which it still reads.
OLD_POD_KEYS = {"gpuType": "leafCellType", "gpuNumber": "leafCellNumber", "reservationId": "pinnedCellId"}
WRAPPER = "hivedscheduler"

_NOTHING = ("", "~", "null")
_A = TypeVar("_A")

Members = tuple[tuple[int, int], ...]
"""Pods, and the leaves of each."""


def read_hived(text: str, source: str) -> CellSite:
    """Reads a configuration, on its own or as OpenPAI keeps it: text under `hivedscheduler: config:`."""
    root = read_document(text, source, CONFIG_LIMITS)
    if root.has(WRAPPER):
        services = dict(root.entries(TYPES_MAX))
        config = services[WRAPPER].mapping(("config",)).need("config", Field.text)
        root = read_document(config, f"{source} (hivedscheduler.config)", CONFIG_LIMITS)
    fields = root.mapping(CONFIG_KEYS)
    physical = fields.need("physicalCluster", lambda field: field.mapping(PHYSICAL_KEYS))
    types = physical.get("cellTypes", _read_types, {})
    cells = physical.need("physicalCells", lambda field: _read_physical(field, types))
    clusters = fields.get("virtualClusters", lambda field: _read_clusters(field, types), ())
    skus = physical.get("skuTypes", _read_skus, {}) or physical.get("gpuTypes", _read_skus, {})
    exempt = fields.get("quotaExcludeVCs", _optional_items, ())
    return CellSite(types, cells, clusters, skus, tuple(item.title() for item in exempt))


def _read_types(field: Field) -> dict[str, CellType]:
    types: dict[str, CellType] = {}
    for name, entry in field.entries(TYPES_MAX):
        fields = entry.mapping(("childCellType", "childCellNumber", "isNodeLevel"))
        types[entry.key(name)] = CellType(
            name,
            fields.need("childCellType", Field.title),
            fields.need("childCellNumber", lambda count: count.integer(1, CHILDREN_MAX)),
            fields.get("isNodeLevel", Field.boolean, False),
        )
    for name, entry in field.entries(TYPES_MAX):
        _located(entry, lambda name=name: _refuse_cycle(types, name))  # type: ignore[misc]
    return types


def _refuse_cycle(types: Mapping[str, CellType], name: str) -> None:
    seen = [name]
    while seen[-1] in types:
        seen.append(types[seen[-1]].child)
        if seen[-1] in seen[:-1]:
            raise CellError(f"cell type '{seen[-1]}' contains itself: {' > '.join(seen)}")


def _read_skus(field: Field) -> dict[str, Sku]:
    skus: dict[str, Sku] = {}
    for name, entry in field.entries(TYPES_MAX):
        fields = entry.mapping(("gpu", "cpu", "memory"))
        skus[name] = Sku(
            name,
            fields.get("gpu", lambda gpus: gpus.integer(0, LEAVES_MAX), 0),
            fields.get("cpu", lambda cpus: int(cpus.decimal(0, CPUS_MAX) * 1000), 0),
            fields.get("memory", memory_mb, 0),
        )
    return skus


def _read_physical(field: Field, types: Mapping[str, CellType]) -> tuple[PhysicalSpec, ...]:
    chains: dict[str, Chain] = {}
    cells: list[PhysicalSpec] = []
    for number, item in enumerate(field.items(1, CELLS_MAX)):
        name = item.mapping(CELL_KEYS).need("cellType", Field.title)
        if name not in types:
            raise item.error(f"physicalCells has the unknown cellType '{name}', {nearest(name, types)}")
        if name not in chains:
            chains[name] = _located(item, lambda name=name: chain_of(types, name))  # type: ignore[misc]
        cells.append(_CellReader(chains[name]).read(item, chains[name].top, number))
    return tuple(cells)


class _CellReader:
    """Reads a cell of a chain with its children, and infers the addresses that are left out.

    Inside a node an address defaults to the index within the node; above, to the index within the top cell.
    """

    def __init__(self, chain: Chain) -> None:
        self.chain = chain

    def read(self, field: Field, level: int, number: int) -> PhysicalSpec:
        fields = field.mapping(CELL_KEYS)
        kind = fields.get("cellType", _optional, "")
        if kind not in ("", self.chain.types[level]):
            raise field.error(f"expected a cell of type '{self.chain.types[level]}' here, got '{kind}'")
        address = self._address(field, level, number, fields.get("cellAddress", _optional, ""))
        children = fields.get("cellChildren", _optional_items, ())
        if children and len(children) != self.chain.fanout[level]:
            raise field.error(
                f"a cell of type '{kind or self.chain.types[level]}' has {self.chain.fanout[level]} children, "
                f"got {len(children)}"
            )
        pinned_id = fields.get("pinnedCellId", _optional, "")
        first = self._first_child(level, number)
        if children:
            read = tuple(self.read(child, level - 1, first + i) for i, child in enumerate(children))
        else:
            read = tuple(self._infer(field, level - 1, first + i) for i in range(self.chain.fanout[level]))
        return PhysicalSpec(self.chain.types[level], address, pinned_id, read)

    def _infer(self, field: Field, level: int, number: int) -> PhysicalSpec:
        address = self._address(field, level, number, "")
        first = self._first_child(level, number)
        children = tuple(self._infer(field, level - 1, first + i) for i in range(self.chain.fanout[level]))
        return PhysicalSpec(self.chain.types[level], address, "", children)

    def _first_child(self, level: int, number: int) -> int:
        """Children are counted within their node, and above nodes within the top cell."""
        return 0 if level in (self.chain.node_level, self.chain.top) else number * self.chain.fanout[level]

    def _address(self, field: Field, level: int, number: int, given: str) -> str:
        if level == self.chain.node_level and not given:
            raise field.error(f"a cell of type '{self.chain.types[level]}' is a node and needs its name as cellAddress")
        if level == LEAF_LEVEL and given and not given.isdecimal():
            raise field.error(f"expected the index of a leaf as cellAddress, got '{given}'")
        return given or str(number)


def _read_clusters(field: Field, types: Mapping[str, CellType]) -> tuple[VirtualClusterSpec, ...]:
    return tuple(_read_cluster(name, entry, types) for name, entry in field.entries(CLUSTERS_MAX))


def _read_cluster(name: str, field: Field, types: Mapping[str, CellType]) -> VirtualClusterSpec:
    fields = field.mapping(("virtualCells", "pinnedCells", "borrowLimit"))
    cells = fields.get("virtualCells", _optional_items, ())
    pinned = fields.get("pinnedCells", _optional_items, ())
    return VirtualClusterSpec(
        field.key(name),
        tuple(_read_virtual(item, types) for item in cells),
        tuple(item.mapping(("pinnedCellId",)).need("pinnedCellId", Field.title) for item in pinned),
        fields.get("borrowLimit", lambda limit: limit.integer(0, LEAVES_MAX), None),
    )


def _read_virtual(field: Field, types: Mapping[str, CellType]) -> VirtualSpec:
    """A fully qualified type names its chain first and itself last; levels between may be left out."""
    fields = field.mapping(("cellType", "cellNumber"))
    count = fields.need("cellNumber", lambda count: count.integer(0, CELLS_MAX))
    qualified = fields.need("cellType", Field.title).split(".")
    if qualified[0] not in types:
        raise fields["cellType"].error(f"unknown cell type '{qualified[0]}', {nearest(qualified[0], types)}")
    inside = list(_located(field, lambda: chain_of(types, qualified[0])).types[:0:-1])
    at = 0
    for part in qualified:
        if part not in inside[at:]:
            raise fields["cellType"].error(
                f"cell type '{qualified[0]}' contains no '{part}' in this order (it contains: {' > '.join(inside)})"
            )
        at = inside.index(part)
    return VirtualSpec(qualified[0], qualified[-1], count)


@dataclass(frozen=True, slots=True)
class PodSpec:
    """What one pod asks of HiveD, and of which group it is; members are pairs of pods and leaves of each."""

    virtual_cluster: str
    leaves: int
    group: str
    members: Members
    priority: int = 0
    leaf_type: str = ""
    pinned_id: str = ""
    lazy_preemption: bool = False
    ignores_suggestions: bool = True
    quota: tuple[str, int] | None = None


def read_annotation(text: str, source: str, pod: str) -> PodSpec:
    """The value of the pod-scheduling-spec annotation of a pod."""
    return read_pod(read_document(text, source, CONFIG_LIMITS), pod)


def read_pod(field: Field, pod: str) -> PodSpec:
    """A pod-scheduling-spec. A pod that names no group is a group of its own, named like the pod."""
    fields = field.mapping((*POD_KEYS, *OLD_POD_KEYS))
    given = {OLD_POD_KEYS.get(key, key): value for key, value in fields.items()}

    def get(key: str, read: Callable[[Field], _A], default: _A) -> _A:
        return read(given[key]) if key in given else default

    if "leafCellNumber" not in given:
        raise field.error("the key 'leafCellNumber' is missing")
    leaves = _count(given["leafCellNumber"])
    no_group: tuple[str, Members] = pod, ((1, leaves),)
    group, members = get("affinityGroup", lambda given: _read_group(given) or no_group, no_group)
    if leaves not in [size for _, size in members]:
        sizes = ", ".join(f"{pods} × {size}" for pods, size in members)
        raise field.error(
            f"the members of group '{group}' ({sizes}) have no pod of {leaves} leaves, which this one asks for"
        )
    cluster = get("virtualCluster", _optional, "")
    if not cluster:
        raise field.error("virtualCluster is empty")
    return PodSpec(
        cluster,
        leaves,
        group,
        members,
        get("priority", lambda priority: priority.integer(PRIORITY_MIN, PRIORITY_MAX), 0),
        get("leafCellType", _optional, ""),
        get("pinnedCellId", _optional, ""),
        get("lazyPreemptionEnable", Field.boolean, False),
        get("ignoreK8sSuggestedNodes", Field.boolean, True),
        get("quota", _read_quota, None),
    )


def _read_quota(field: Field) -> tuple[str, int] | None:
    """A tag and the most leaves for all groups that carry it; no tag, or a negative count, is no quota."""
    fields = field.mapping(("tag", "count"))
    tag = fields.get("tag", _optional, "")
    count = fields.get("count", lambda count: count.integer(-1, LEAVES_MAX), 0)
    return (tag, count) if tag and count >= 0 else None


def _read_group(field: Field) -> tuple[str, Members] | None:
    if not field.is_mapping and not field.is_list and not _optional(field):
        return None
    fields = field.mapping(("name", "members"))
    members: list[tuple[int, int]] = []
    for item in fields.need("members", lambda members: members.items(1, CELLS_MAX)):
        parts = item.mapping(("podNumber", "leafCellNumber", "gpuNumber"))
        size = "gpuNumber" if "gpuNumber" in parts else "leafCellNumber"
        members.append((parts.need("podNumber", _count), parts.need(size, _count)))
    # As in HiveD, members of one size are one, and their order means nothing.
    pods: dict[int, int] = {}
    for count, leaves in members:
        pods[leaves] = pods.get(leaves, 0) + count
    return fields.need("name", Field.title), tuple((pods[leaves], leaves) for leaves in sorted(pods))


def _count(field: Field) -> int:
    return field.integer(1, LEAVES_MAX)


def _optional(field: Field) -> str:
    """Text that may also be empty or null."""
    is_empty = not (field.is_mapping or field.is_list) and any(field.is_word(word) for word in _NOTHING)
    return "" if is_empty else field.title()


def _optional_items(field: Field) -> tuple[Field, ...]:
    """A list that may also be null."""
    return field.items(0, CELLS_MAX) if field.is_list or field.is_mapping or _optional(field) else ()


def _located(field: Field, work: Callable[[], _A]) -> _A:
    """What some work answers; its complaint is told with its place."""
    try:
        return work()
    except CellError as error:
        raise field.error(str(error)) from None
