"""Cells as a site describes them: types, the hardware in them, and the virtual clusters that own some.

A cell is a piece of hardware in a hierarchy: a GPU, a switch, a socket, a node, a rack. A chain is the list of types
from the leaf to one type that stands alone; all cells of a type have the same number of children, which is what makes
one as good as another to any request for one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from phalanx.errors import PhalanxError

LEAF_LEVEL = 1
"""Levels are counted from the leaf, as HiveD counts them."""


class CellError(PhalanxError):
    """Cells that do not exist, do not fit, or contradict one another."""


@dataclass(frozen=True, slots=True)
class CellType:
    """A type of cell: so many cells of another type. A type that is not declared is a leaf."""

    name: str
    child: str
    child_count: int
    is_node: bool = False


@dataclass(frozen=True, slots=True)
class PhysicalSpec:
    """A cell of the hardware. The address of a node is its name, that of a leaf its index on the node."""

    type: str
    address: str
    pinned_id: str = ""
    children: tuple[PhysicalSpec, ...] = ()

    def walk(self) -> Iterator[PhysicalSpec]:
        """This cell and all in it."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class VirtualSpec:
    """So many cells of a type that a virtual cluster owns, wherever in hardware of that chain they are."""

    chain: str
    type: str
    count: int


@dataclass(frozen=True, slots=True)
class VirtualClusterSpec:
    """A tenant: the cells it owns, and those it owns by name.

    `borrow_max` is the most leaves its opportunistic work may have at a time; None is no limit.
    """

    name: str
    cells: tuple[VirtualSpec, ...] = ()
    pinned_ids: tuple[str, ...] = ()
    borrow_max: int | None = None


@dataclass(frozen=True, slots=True)
class Sku:
    """What comes with one leaf: OpenPAI asks for resources in these units."""

    name: str
    gpus: int = 0
    cpus_milli: int = 0
    memory_mb: int = 0


@dataclass(frozen=True, slots=True)
class Chain:
    """The types from the leaf (level 1) to the top; element 0 of every tuple stands for no level."""

    name: str
    types: tuple[str, ...]
    fanout: tuple[int, ...]
    leaves: tuple[int, ...]
    node_level: int

    @property
    def top(self) -> int:
        """The highest level."""
        return len(self.types) - 1

    @property
    def leaf_type(self) -> str:
        """The type of the leaves."""
        return self.types[LEAF_LEVEL]

    def level_of(self, type_name: str) -> int:
        """The level of a type, or 0 if it is not in the chain."""
        return self.types.index(type_name) if type_name in self.types else 0


@dataclass(frozen=True, slots=True)
class CellSite:
    """A site: its types of cells, its hardware, its virtual clusters."""

    types: Mapping[str, CellType]
    physical: tuple[PhysicalSpec, ...]
    virtual_clusters: tuple[VirtualClusterSpec, ...]
    skus: Mapping[str, Sku] = field(default_factory=dict)
    quota_exempt: tuple[str, ...] = ()

    def chains(self) -> dict[str, Chain]:
        """The chains that have hardware, by the name of their top type."""
        names = dict.fromkeys(spec.type for spec in self.physical)
        return {name: chain_of(self.types, name) for name in names}


def chain_of(types: Mapping[str, CellType], top: str) -> Chain:
    """The chain under a type."""
    downwards = [top]
    while downwards[-1] in types:
        child = types[downwards[-1]].child
        if child in downwards:
            raise CellError(f"cell type '{child}' contains itself: {' > '.join([*downwards, child])}")
        downwards.append(child)
    upwards = downwards[::-1]
    fanout = [0, 0, *(types[name].child_count for name in upwards[1:])]
    leaves = [0, 1]
    for count in fanout[2:]:
        leaves.append(leaves[-1] * count)
    nodes = [level for level, name in enumerate(upwards, start=1) if name in types and types[name].is_node]
    if len(nodes) != 1:
        found = ", ".join(upwards[level - 1] for level in nodes) or "none"
        raise CellError(
            f"cell type '{top}' must have exactly one node level (isNodeLevel: true) in {' > '.join(downwards)}, "
            f"found {found}"
        )
    return Chain(top, ("", *upwards), tuple(fanout), tuple(leaves), nodes[0])
