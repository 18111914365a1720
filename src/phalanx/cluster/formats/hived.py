"""HiveD's configuration file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from phalanx.cluster.cells import (
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
from phalanx.cluster.formats.memory import memory_mb
from phalanx.document import Field, Limits, read_document
from phalanx.document.field import CPUS_MAX, nearest

CONFIG_LIMITS = Limits(text=16 * 1024 * 1024, values=4_000_000)
TYPES_MAX = 10_000
CELLS_MAX = 200_000
CHILDREN_MAX = 100_000
CLUSTERS_MAX = 10_000
LEAVES_MAX = 100_000

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
WRAPPER = "hivedscheduler"

_NOTHING = ("", "~", "null")
_A = TypeVar("_A")


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
        kind = fields.get("cellType", optional, "")
        if kind not in ("", self.chain.types[level]):
            raise field.error(f"expected a cell of type '{self.chain.types[level]}' here, got '{kind}'")
        address = self._address(field, level, number, fields.get("cellAddress", optional, ""))
        children = fields.get("cellChildren", _optional_items, ())
        if children and len(children) != self.chain.fanout[level]:
            raise field.error(
                f"a cell of type '{kind or self.chain.types[level]}' has {self.chain.fanout[level]} children, "
                f"got {len(children)}"
            )
        pinned_id = fields.get("pinnedCellId", optional, "")
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


def optional(field: Field) -> str:
    """Text that may also be empty or null."""
    is_empty = not (field.is_mapping or field.is_list) and any(field.is_word(word) for word in _NOTHING)
    return "" if is_empty else field.title()


def _optional_items(field: Field) -> tuple[Field, ...]:
    """A list that may also be null."""
    return field.items(0, CELLS_MAX) if field.is_list or field.is_mapping or optional(field) else ()


def _located(field: Field, work: Callable[[], _A]) -> _A:
    """What some work answers; its complaint is told with its place."""
    try:
        return work()
    except CellError as error:
        raise field.error(str(error)) from None
