"""Growing the trees of cells from what a site describes."""

from __future__ import annotations

from phalanx.cluster.cells import LEAF_LEVEL, CellError, Chain, PhysicalSpec
from phalanx.placement.cells.trees.cell import PhysicalCell, VirtualCell


def plant_physical(spec: PhysicalSpec, chain: Chain) -> tuple[PhysicalCell, dict[str, PhysicalCell]]:
    """The tree of one cell of hardware, and the pinned cells in it by their ids."""
    pinned: dict[str, PhysicalCell] = {}
    top = _physical(spec, chain, chain.top, None, pinned)
    return top, pinned


def _physical(
    spec: PhysicalSpec,
    chain: Chain,
    level: int,
    parent: PhysicalCell | None,
    pinned: dict[str, PhysicalCell],
) -> PhysicalCell:
    address = spec.address if parent is None else f"{parent.address}/{spec.address}"
    cell = PhysicalCell(chain, level, address, parent)
    above = parent.lineage if parent is not None else (None,) * (chain.top + 1)
    cell.lineage = (*above[:level], cell, *above[level + 1 :])
    if level == chain.node_level:
        cell.node_name = spec.address
    elif parent is not None:
        cell.node_name = parent.node_name
    if level == LEAF_LEVEL:
        cell.index = int(spec.address)
    if spec.pinned_id:
        pinned[spec.pinned_id] = cell
    if len(spec.children) != chain.fanout[level]:
        raise CellError(
            f"physical cell {address} of type {chain.types[level]} has {len(spec.children)} children, "
            f"its type says {chain.fanout[level]}"
        )
    cell.children = tuple(_physical(child, chain, level - 1, cell, pinned) for child in spec.children)
    return cell


def plant_virtual(owner: str, chain: Chain, level: int, number: int) -> VirtualCell:
    """The tree of one cell that a virtual cluster owns; `number` counts the cluster's own cells."""
    return _virtual(owner, chain, level, f"{owner}/{number}", None, 0)


def _virtual(owner: str, chain: Chain, level: int, address: str, parent: VirtualCell | None, order: int) -> VirtualCell:
    cell = VirtualCell(owner, chain, level, address, parent)
    above = parent.lineage if parent is not None else (None,) * (chain.top + 1)
    cell.lineage = (*above[:level], cell, *above[level + 1 :])
    if parent is not None and level < chain.node_level:
        cell.home = parent.home
    # An address counts the cells of a level within their root.
    first = order * chain.fanout[level]
    cell.children = tuple(
        _virtual(owner, chain, level - 1, f"{address}/{first + i}", cell, first + i) for i in range(chain.fanout[level])
    )
    return cell
