"""Finding leaves for a gang, in its virtual cluster and then in hardware, and giving them to it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from phalanx.placement.cells.group import Group, GroupState, Seat
from phalanx.placement.cells.hold import bind_root
from phalanx.placement.cells.limits import exceeded
from phalanx.placement.cells.match import match
from phalanx.placement.cells.outcome import Obstacle, Outcome
from phalanx.placement.cells.pack import Chosen, Unfit, pack_physical, pack_virtual, pack_virtual_over
from phalanx.placement.cells.preempt import allocate, cancel, preempt_lazily, preemptors_of, reserve, users_of
from phalanx.placement.cells.request import Request, Suggestion
from phalanx.placement.cells.trees.cell import PhysicalCell, VirtualCell
from phalanx.placement.cells.trees.estate import Estate, Pool


def schedule(estate: Estate, request: Request, suggestion: Suggestion) -> Outcome:
    """Gives a new gang its leaves, or reserves them while victims leave, or says why neither is possible."""
    reason = exceeded(estate, request)
    if reason:
        return Outcome(reason=reason, obstacle=Obstacle.LIMIT)
    if request.ignores_suggestions:
        suggestion = Suggestion()
    if request.is_opportunistic:
        return _schedule_opportunistic(estate, request, suggestion)
    return _schedule_guaranteed(estate, request, suggestion)


def _schedule_opportunistic(estate: Estate, request: Request, suggestion: Suggestion) -> Outcome:
    reason, obstacle = "", Obstacle.CAPACITY
    for leaf_type in [request.leaf_type] if request.leaf_type else list(estate.leaf_types):
        for state in estate.leaf_types[leaf_type]:
            try:
                chosen = pack_physical(state.view, request.sizes, suggestion)
            except Unfit as unfit:
                reason, obstacle = f"{unfit} in the whole cluster", unfit.obstacle
                continue
            return _settle_down(estate, request, [Seat.of(leaves, None) for leaves in chosen])
    return Outcome(reason=reason, obstacle=obstacle)


def _schedule_guaranteed(estate: Estate, request: Request, suggestion: Suggestion) -> Outcome:
    """Every pool is tried without preemption before any is tried with it."""
    reason, obstacle = "there are too few free leaves", Obstacle.CAPACITY
    pools = pools_of(estate, request)
    for priority in (None, request.priority):
        for pool in pools:
            if priority is not None and not pool.view.in_use_below(priority):
                continue
            try:
                chosen = _pack(pool, request, suggestion, priority)
                return _to_hardware(estate, request, chosen, suggestion)
            except Unfit as unfit:
                reason, obstacle = str(unfit), unfit.obstacle
    return Outcome(reason=f"{reason} (virtual cluster {request.virtual_cluster})", obstacle=obstacle)


def pools_of(estate: Estate, request: Request) -> list[Pool]:
    """The pools of its virtual cluster in which a gang may be, in the order in which they are tried."""
    cluster = estate.clusters[request.virtual_cluster]
    if request.pinned_id:
        return [cluster.pinned[request.pinned_id]]
    types = [request.leaf_type] if request.leaf_type else list(estate.leaf_types)
    names = [state.chain.name for leaf_type in types for state in estate.leaf_types[leaf_type]]
    return [cluster.pools[name] for name in names if name in cluster.pools]


def _pack(pool: Pool, request: Request, suggestion: Suggestion, priority: int | None) -> Chosen[VirtualCell]:
    if priority is None:
        return pack_virtual(pool.view, request.sizes, suggestion)
    return pack_virtual_over(pool.view, request.sizes, suggestion, priority)


def _to_hardware(estate: Estate, request: Request, chosen: Chosen[VirtualCell], suggestion: Suggestion) -> Outcome:
    """Binds what was chosen in the virtual cluster.

    Groups that yield lazily do so first: they may keep their hardware while the newcomer gets other.
    """
    mark = estate.undo.mark()
    leaves = [leaf for pod in chosen for leaf in pod]
    lazy = _yield_lazily(estate, leaves, request.group)
    found = match(estate, leaves, suggestion)
    if found is None:
        estate.undo.undo_to(mark)
        kind = "bad" if request.ignores_suggestions else "bad or not suggested"
        raise Unfit(
            f"its cells can be bound only with a node that is {kind}",
            Obstacle.BROKEN if suggestion.are_all else Obstacle.UNSUGGESTED,
        )
    seats = [Seat.of([found[leaf.address] for leaf in pod], pod) for pod in chosen]
    return _settle_down(estate, request, seats, lazy)


def _yield_lazily(estate: Estate, leaves: list[VirtualCell], preemptor: str) -> tuple[Group, ...]:
    """Takes the guarantee from groups on some virtual leaves that yield lazily: they run on."""
    yielding = users_of(_guaranteed_hardware(leaves))
    lazy = tuple(group for group in yielding if group.request.lazy_preemption and group.is_guaranteed)
    for group in lazy:
        preempt_lazily(estate, group, preemptor)
    return lazy


def take(estate: Estate, request: Request, seats: list[Seat]) -> Outcome:
    """Gives a gang the leaves that were found for it before, by the same steps."""
    virtual = [leaf for seat in seats for leaf in seat.virtual or () if leaf is not None]
    lazy = _yield_lazily(estate, virtual, request.group)
    for seat in seats:
        for leaf, owned in zip(seat.leaves, seat.virtual or (), strict=False):
            if leaf is not None and owned is not None and owned.root.physical is None:
                cell = leaf.lineage[owned.root.level]
                assert cell is not None, f"{leaf} does not lie in a cell like {owned.root}"
                bind_root(estate, cell, owned.root)
    return _settle_down(estate, request, seats, lazy)


def _guaranteed_hardware(leaves: list[VirtualCell]) -> Iterator[PhysicalCell]:
    for leaf in leaves:
        if leaf.physical is not None:
            yield leaf.physical


def _settle_down(estate: Estate, request: Request, seats: list[Seat], lazy: tuple[Group, ...] = ()) -> Outcome:
    """Makes the group. Groups that wait for the same leaves at a lower priority no longer do."""
    leaves = [leaf for seat in seats for leaf in seat.leaves if leaf is not None]
    victims = users_of(leaves)
    cancelled = preemptors_of(leaves)
    for preemptor in cancelled:
        cancel(estate, preemptor)
    estate.undo.set(estate, "serial", estate.serial + 1)
    state = GroupState.PREEMPTING if victims else GroupState.ALLOCATED
    group = Group(request, leaves[0].chain.name, _in_order(request, seats), state, estate.serial)
    if victims:
        reserve(estate, group)
    else:
        allocate(estate, group)
    return Outcome(group, victims, lazy, tuple(each.name for each in cancelled))


def _in_order(request: Request, seats: list[Seat]) -> list[Seat]:
    """Seats in the order of the members; they were chosen by size."""
    by_size: dict[int, list[Seat]] = {}
    for seat in seats:
        by_size.setdefault(seat.size, []).append(seat)
    rest = {size: iter(each) for size, each in by_size.items()}
    return [seat for member in request.members for seat in islice(rest[member.leaves], member.pods)]
