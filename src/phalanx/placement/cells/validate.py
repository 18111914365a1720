"""Requests that can never be granted, refused with the arithmetic."""

from __future__ import annotations

from phalanx.cluster.cells import CellError
from phalanx.placement.cells.priority import GUARANTEED_MAX, OPPORTUNISTIC
from phalanx.placement.cells.request import Request
from phalanx.placement.cells.schedule import pools_of
from phalanx.placement.cells.trees.estate import Estate


def validate(estate: Estate, request: Request) -> None:
    """Raises CellError for what this site cannot ever do, whatever runs now."""
    group = f"group '{request.group}'"
    cluster = estate.clusters.get(request.virtual_cluster)
    if cluster is None:
        known = ", ".join(estate.clusters) or "none"
        raise CellError(f"{group}: there is no virtual cluster '{request.virtual_cluster}' (there are: {known})")
    if not OPPORTUNISTIC <= request.priority <= GUARANTEED_MAX:
        raise CellError(
            f"{group}: priority {request.priority} is out of range: {OPPORTUNISTIC} is opportunistic, "
            f"0 to {GUARANTEED_MAX} is guaranteed"
        )
    if not request.members or min(min(each.pods, each.leaves) for each in request.members) < 1:
        raise CellError(f"{group}: every member needs at least one pod of at least one leaf")
    if request.pinned_id:
        _validate_pinned(group, request, list(cluster.pinned))
    elif request.leaf_type and request.leaf_type not in estate.leaf_types:
        raise CellError(
            f"{group}: no leaf in the whole cluster is of type '{request.leaf_type}' "
            f"(there are: {', '.join(estate.leaf_types)})"
        )
    _validate_size(group, request, _rooms(estate, request, group))
    limit = estate.borrow_max[request.virtual_cluster]
    if request.is_opportunistic and limit is not None and limit < request.leaves:
        raise CellError(
            f"{group}: virtual cluster '{request.virtual_cluster}' may borrow {limit} leaves, never {request.leaves}"
        )


def _validate_pinned(group: str, request: Request, pinned: list[str]) -> None:
    if request.pinned_id not in pinned:
        raise CellError(
            f"{group}: virtual cluster '{request.virtual_cluster}' has no pinned cell '{request.pinned_id}' "
            f"(it has: {', '.join(pinned) or 'none'})"
        )
    if request.is_opportunistic:
        raise CellError(f"{group}: opportunistic work cannot ask for a pinned cell ('{request.pinned_id}')")


def _rooms(estate: Estate, request: Request, group: str) -> dict[str, tuple[int, int]]:
    """Where the gang could be: all leaves there, and the most that one pod can have."""
    if request.is_opportunistic:
        types = [request.leaf_type] if request.leaf_type else list(estate.leaf_types)
        return {
            f"{state.chain.name} of the whole cluster": (
                len(state.nodes) * state.chain.leaves[state.chain.node_level],
                state.chain.leaves[state.chain.node_level],
            )
            for leaf_type in types
            for state in estate.leaf_types[leaf_type]
        }
    owner = f"virtual cluster '{request.virtual_cluster}'"
    pools = pools_of(estate, request)
    if not pools:
        kind = f" of type '{request.leaf_type}'" if request.leaf_type else ""
        raise CellError(f"{group}: {owner} owns no cells{kind}")
    return {f"{pool.chain.name} of {owner}": (pool.leaf_count, pool.largest_home) for pool in pools}


def _validate_size(group: str, request: Request, rooms: dict[str, tuple[int, int]]) -> None:
    asked = " + ".join(f"{member.pods} × {member.leaves}" for member in request.members)
    largest = max(member.leaves for member in request.members)
    if all(size < largest for _, size in rooms.values()):
        there = ", ".join(f"{size} in {name}" for name, (_, size) in rooms.items())
        raise CellError(
            f"{group}: a pod of {largest} leaves never fits one node; the largest cell in a node has {there}"
        )
    if all(total < request.leaves for total, _ in rooms.values()):
        there = ", ".join(f"{total} in {name}" for name, (total, _) in rooms.items())
        raise CellError(f"{group}: {asked} = {request.leaves} leaves never fit; there are {there}")
