"""Which devices the cells of virtual clusters are bound to."""

from __future__ import annotations

from phalanx.engine.state.state import State


def bound_cells(state: State) -> dict[str, dict[str, int]]:
    """The devices of every virtual cluster that has cells bound now, by node, as a set of bits.

    A cell is bound to hardware while a guaranteed job has a part of it, a pinned one always.
    """
    found: dict[str, dict[str, int]] = {}
    if state.cells is None:
        return found
    for name, cluster in state.cells.cells.estate.clusters.items():
        for root in cluster.roots():
            for leaf in root.physical.leaves() if root.physical is not None else ():
                nodes = found.setdefault(name, {})
                nodes[leaf.node_name] = nodes.get(leaf.node_name, 0) | 1 << leaf.index
    return found
