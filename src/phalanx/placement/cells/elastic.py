"""Gangs that grow and shrink inside their virtual cluster."""

from __future__ import annotations

from phalanx.placement.cells.group import Group, GroupState, Seat
from phalanx.placement.cells.hold import seize, vacate
from phalanx.placement.cells.limits import may_borrow
from phalanx.placement.cells.match import match
from phalanx.placement.cells.pack import Unfit, pack_physical, pack_virtual
from phalanx.placement.cells.request import Suggestion
from phalanx.placement.cells.schedule import pools_of
from phalanx.placement.cells.trees.estate import Estate


def grow(estate: Estate, group: Group, leaves: int, suggestion: Suggestion) -> Seat | None:
    """One more pod of so many leaves, in the group's chain, where it preempts no group; None if there is no place."""
    if group.state is not GroupState.ALLOCATED:
        return None
    mark = estate.undo.mark()
    find = _guaranteed_seat if group.is_guaranteed else _idle_seat
    seat = find(estate, group, leaves, suggestion)
    if seat is None or any(leaf is not None and leaf.using is not None for leaf in seat.leaves):
        estate.undo.undo_to(mark)
        return None
    add(estate, group, seat)
    return seat


def add(estate: Estate, group: Group, seat: Seat) -> None:
    """Gives a group one more seat, on free leaves."""
    estate.undo.set(group, "seats", [*group.seats, seat])
    seize(estate, [pair for pair in group.pairs() if pair[0] in seat.leaves], group.priority)
    for leaf in seat.leaves:
        estate.undo.set(leaf, "using", group)


def shrink(estate: Estate, group: Group, seat: Seat) -> None:
    """A group gives one of its seats back."""
    leaves = [leaf for leaf in seat.leaves if leaf is not None]
    vacate(estate, [leaf for leaf in leaves if leaf.reserving is None])
    for leaf in leaves:
        estate.undo.set(leaf, "using", None)
    estate.undo.set(group, "seats", [other for other in group.seats if other is not seat])


def _guaranteed_seat(estate: Estate, group: Group, leaves: int, suggestion: Suggestion) -> Seat | None:
    for pool in pools_of(estate, group.request):
        if pool.chain.name == group.chain:
            try:
                (virtual,) = pack_virtual(pool.view, [leaves], suggestion)
            except Unfit:
                return None
            found = match(estate, virtual, suggestion)
            return Seat.of([found[leaf.address] for leaf in virtual], virtual) if found is not None else None
    return None


def _idle_seat(estate: Estate, group: Group, leaves: int, suggestion: Suggestion) -> Seat | None:
    if not may_borrow(estate, group.request.virtual_cluster, leaves):
        return None
    try:
        (chosen,) = pack_physical(estate.chains[group.chain].view, [leaves], suggestion)
    except Unfit:
        return None
    return Seat.of(chosen, None)
