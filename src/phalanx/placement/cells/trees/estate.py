"""The estate: all cells of a site, which groups have them, and what is owed to which cluster."""

from __future__ import annotations

from phalanx.cluster.cells import LEAF_LEVEL, CellError, CellSite, Chain, VirtualClusterSpec
from phalanx.placement.cells.group import Group
from phalanx.placement.cells.trees.buddy import Buddies, surplus
from phalanx.placement.cells.trees.cell import PhysicalCell, VirtualCell
from phalanx.placement.cells.trees.plant import plant_physical, plant_virtual
from phalanx.placement.cells.trees.undo import Undo
from phalanx.placement.cells.trees.view import View


class Pool:
    """Cells of one chain that a virtual cluster owns, or one cell that is pinned to it."""

    __slots__ = ("chain", "largest_home", "leaf_count", "roots", "view")

    def __init__(self, chain: Chain, roots: list[VirtualCell], undo: Undo) -> None:
        self.chain = chain
        self.roots: tuple[list[VirtualCell], ...] = tuple([] for _ in range(chain.top + 1))
        for root in roots:
            self.roots[root.level].append(root)
        self.leaf_count = sum(root.leaf_count for root in roots)
        self.view: View[VirtualCell] = View(_homes(roots, chain), undo)
        # The most leaves that one pod can have.
        self.largest_home = max((home.leaf_count for home in self.view.nodes), default=0)

    def free_root(self, level: int) -> VirtualCell | None:
        """The first owned cell of a level that is not bound."""
        return next((root for root in self.roots[level] if root.physical is None), None)


def _homes(roots: list[VirtualCell], chain: Chain) -> list[VirtualCell]:
    """What placing sees as nodes: nodes first, then smaller cells by level, each in the order of the site."""
    homes: list[VirtualCell] = []
    for level in range(chain.node_level, LEAF_LEVEL - 1, -1):
        for root in roots:
            homes.extend(home for home in _cells_at(root, level) if home.home is home)
    return homes


def _cells_at(cell: VirtualCell, level: int) -> list[VirtualCell]:
    if cell.level <= level:
        return [cell] if cell.level == level else []
    return [found for child in cell.children for found in _cells_at(child, level)]


class VirtualCluster:
    """A tenant: its pools by chain, and its pinned cells by id."""

    __slots__ = ("name", "pinned", "pools")

    def __init__(self, name: str) -> None:
        self.name = name
        self.pools: dict[str, Pool] = {}
        self.pinned: dict[str, Pool] = {}

    def roots(self) -> list[VirtualCell]:
        """All cells it owns: by chain, larger ones first, then the pinned ones."""
        pools = [*self.pools.values(), *self.pinned.values()]
        return [root for pool in pools for level in reversed(pool.roots) for root in level]


class ChainState:
    """The hardware of one chain: its tree, what of it is free, what is owed, what is broken."""

    __slots__ = ("bad", "buddies", "chain", "doomed", "nodes", "owed", "owed_all", "tops", "view")

    def __init__(self, chain: Chain, tops: list[PhysicalCell], undo: Undo) -> None:
        self.chain = chain
        self.tops = tops
        self.buddies = Buddies(chain, tops, undo)
        self.nodes = [node for top in tops for node in _nodes(top)]
        self.view: View[PhysicalCell] = View(list(self.nodes), undo)
        # Cells by level that virtual clusters own and do not use: they may be asked for at any moment.
        self.owed: dict[str, list[int]] = {}
        self.owed_all = [0] * (chain.top + 1)
        self.bad: dict[str, PhysicalCell] = {}
        # Owned cells that could only be had broken, by virtual cluster and level. They are bound to broken hardware.
        self.doomed: dict[tuple[str, int], list[VirtualCell]] = {}

    def surplus(self) -> list[int]:
        """What is left by level when every cluster takes what is owed to it."""
        return surplus(self.chain, self.buddies.listed(), self.owed_all)

    def short_level(self) -> int:
        """The highest level of which more is owed than can be had; 0 while the guarantee holds."""
        left = self.surplus()
        return next((level for level in range(self.chain.top, 0, -1) if left[level] < 0), 0)

    def owe(self, undo: Undo, owner: str, level: int, more: int) -> None:
        """So many more cells are owed to a virtual cluster."""
        self._owe(owner, level, more)
        undo.did(self._owe, owner, level, -more)

    def _owe(self, owner: str, level: int, more: int) -> None:
        owed = self.owed.setdefault(owner, [0] * (self.chain.top + 1))
        owed[level] += more
        self.owed_all[level] += more


def _nodes(cell: PhysicalCell) -> list[PhysicalCell]:
    if cell.level == cell.chain.node_level:
        return [cell]
    return [node for child in cell.children for node in _nodes(child)]


class Estate:
    """The state of all cells. What changes it are the functions of this package, each in an undoable step."""

    def __init__(self, site: CellSite) -> None:
        self.site = site
        self.undo = Undo()
        self.chains: dict[str, ChainState] = {}
        self.clusters: dict[str, VirtualCluster] = {}
        self.borrow_max = {spec.name: spec.borrow_max for spec in site.virtual_clusters}
        self.groups: dict[str, Group] = {}
        self.serial = 0
        # What the present step has yet to do at its end.
        self.touched: dict[str, ChainState] = {}
        self.unshown: dict[str, PhysicalCell] = {}
        self.nodes: dict[str, list[PhysicalCell]] = {}
        self.leaves: dict[tuple[str, str, int], PhysicalCell] = {}
        self.leaf_types: dict[str, list[ChainState]] = {}
        with self.undo.step():
            pinned = self._plant()
            for spec in site.virtual_clusters:
                self._found(spec, pinned)
        self._refuse_excess()

    def _plant(self) -> dict[str, PhysicalCell]:
        tops: dict[str, list[PhysicalCell]] = {}
        pinned: dict[str, PhysicalCell] = {}
        chains = self.site.chains()
        for spec in self.site.physical:
            top, found = plant_physical(spec, chains[spec.type])
            tops.setdefault(spec.type, []).append(top)
            for pinned_id, cell in found.items():
                if pinned_id in pinned:
                    raise CellError(f"pinnedCellId '{pinned_id}' is given to {pinned[pinned_id]} and to {cell}")
                pinned[pinned_id] = cell
        for name, chain in chains.items():
            self._add_chain(ChainState(chain, tops[name], self.undo))
        # HiveD leaves the order of the chains of a type open; its own tests have them by name, the last first.
        for states in self.leaf_types.values():
            states.sort(key=lambda state: state.chain.name, reverse=True)
        return pinned

    def _add_chain(self, state: ChainState) -> None:
        name = state.chain.name
        self.chains[name] = state
        self.leaf_types.setdefault(state.chain.leaf_type, []).append(state)
        for node in state.nodes:
            for other in self.nodes.setdefault(node.node_name, []):
                if other.chain.leaf_type == state.chain.leaf_type:
                    raise CellError(
                        f"node '{node.node_name}' is given twice with leaves of type {state.chain.leaf_type}: "
                        f"as {other} and as {node}"
                    )
            self.nodes[node.node_name].append(node)
            for leaf in node.leaves():
                if (name, node.node_name, leaf.index) in self.leaves:
                    raise CellError(f"leaf {leaf.index} of node '{node.node_name}' is given twice, as {leaf}")
                self.leaves[name, node.node_name, leaf.index] = leaf

    def _found(self, spec: VirtualClusterSpec, pinned: dict[str, PhysicalCell]) -> None:
        cluster = self.clusters[spec.name] = VirtualCluster(spec.name)
        roots: dict[str, list[VirtualCell]] = {}
        number = 0
        for owned in spec.cells:
            state = self._chain_of(spec.name, owned.chain, owned.type)
            level = state.chain.level_of(owned.type)
            state.owe(self.undo, spec.name, level, owned.count)
            cells = roots.setdefault(owned.chain, [])
            for _ in range(owned.count):
                cells.append(plant_virtual(spec.name, state.chain, level, number))
                number += 1
        cluster.pools = {
            name: Pool(self.chains[name].chain, cells, self.undo) for name, cells in roots.items() if cells
        }
        for pinned_id in spec.pinned_ids:
            cluster.pinned[pinned_id] = self._pin(spec.name, pinned_id, number, pinned)
            number += 1

    def _chain_of(self, owner: str, chain: str, type_name: str) -> ChainState:
        if chain not in self.chains:
            raise CellError(
                f"virtual cluster '{owner}': there are no physical cells of type '{chain}' "
                f"(there are: {', '.join(self.chains)})"
            )
        state = self.chains[chain]
        if not state.chain.level_of(type_name):
            raise CellError(
                f"virtual cluster '{owner}': cell type '{chain}' contains no '{type_name}' "
                f"(it contains: {', '.join(reversed(state.chain.types[1:]))})"
            )
        return state

    def _pin(self, owner: str, pinned_id: str, number: int, pinned: dict[str, PhysicalCell]) -> Pool:
        cell = pinned.get(pinned_id)
        if cell is None:
            raise CellError(
                f"virtual cluster '{owner}': no physical cell has the pinnedCellId '{pinned_id}' "
                f"(there are: {', '.join(pinned) or 'none'})"
            )
        if cell.virtual is not None:
            raise CellError(f"pinnedCellId '{pinned_id}' is given to '{cell.virtual.owner}' and to '{owner}'")
        root = plant_virtual(owner, cell.chain, cell.level, number)
        root.is_pinned = True
        root.physical, cell.virtual = cell, root
        if not cell.is_idle:
            raise CellError(f"pinnedCellId '{pinned_id}' lies in another pinned cell, or contains one")
        self.chains[cell.chain.name].buddies.take(cell)
        return Pool(cell.chain, [root], self.undo)

    def _refuse_excess(self) -> None:
        for state in self.chains.values():
            short = state.short_level()
            if short:
                raise CellError(f"the virtual clusters own more than there is: {arithmetic(state, short)}")


def arithmetic(state: ChainState, short: int) -> str:
    """How it comes that cells of a level are short: what there is, what is owed, level by level from the top."""
    listed = state.buddies.listed()
    steps = []
    carried = 0
    for level in range(state.chain.top, short - 1, -1):
        there = carried + listed[level]
        left = there - state.owed_all[level]
        owners = " + ".join(f"{owed[level]} of '{name}'" for name, owed in state.owed.items() if owed[level])
        steps.append(
            f"{state.chain.types[level]}: {there} there, {state.owed_all[level]} owned"
            + (f" ({owners})" if owners else "")
            + f", {left} left"
        )
        carried = left * state.chain.fanout[level]
    return "; ".join(steps)
