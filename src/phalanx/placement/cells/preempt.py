"""Preemption: which groups are in the way, which wait for them to go, and how that is called off."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.placement.cells.group import Group, GroupState
from phalanx.placement.cells.hold import Pair, seize, vacate
from phalanx.placement.cells.trees.cell import PhysicalCell
from phalanx.placement.cells.trees.estate import Estate


def users_of(leaves: Iterable[PhysicalCell]) -> tuple[Group, ...]:
    """The groups that use some leaves, by age."""
    return _by_age(leaf.using for leaf in leaves)


def preemptors_of(leaves: Iterable[PhysicalCell]) -> tuple[Group, ...]:
    """The groups that are waiting for some leaves, by age."""
    return _by_age(leaf.reserving for leaf in leaves)


def allocate(estate: Estate, group: Group) -> None:
    """Gives a new group free leaves."""
    seize(estate, group.pairs(), group.priority)
    for leaf in group.leaves():
        estate.undo.set(leaf, "using", group)
    estate.undo.put(estate.groups, group.name, group)


def reserve(estate: Estate, group: Group) -> None:
    """Gives a new group leaves still in use: no group of its priority or less can have them from now on."""
    for leaf, virtual in group.pairs():
        if leaf.using is not None:
            vacate(estate, [leaf])
            estate.undo.set(leaf.using, "state", GroupState.BEING_PREEMPTED)
        seize(estate, [(leaf, virtual)], group.priority)
        estate.undo.set(leaf, "reserving", group)
    estate.undo.put(estate.groups, group.name, group)


def promote(estate: Estate, group: Group) -> None:
    """Those in the way of a group have gone: it has its leaves."""
    for leaf in group.leaves():
        estate.undo.set(leaf, "reserving", None)
        estate.undo.set(leaf, "using", group)
    estate.undo.set(group, "state", GroupState.ALLOCATED)


def cancel(estate: Estate, group: Group) -> None:
    """A group no longer waits for its leaves: the groups that use them keep them."""
    vacate(estate, group.leaves())
    returned: list[Group] = []
    for leaf in group.leaves():
        estate.undo.set(leaf, "reserving", None)
        if leaf.using is not None:
            seize(estate, [_pair_of(leaf.using, leaf)], leaf.using.priority)
            returned.append(leaf.using)
    for user in _by_age(returned):
        if not any(leaf.reserving for leaf in user.leaves()):
            estate.undo.set(user, "state", GroupState.ALLOCATED)
    estate.undo.drop(estate.groups, group.name)


def release(estate: Estate, group: Group) -> None:
    """A group has gone. Leaves that another group waits for belong to that one already."""
    for leaf in group.leaves():
        if leaf.reserving is None:
            vacate(estate, [leaf])
        estate.undo.set(leaf, "using", None)
    estate.undo.drop(estate.groups, group.name)


def preempt_lazily(estate: Estate, group: Group, preemptor: str) -> None:
    """A group loses its guarantee and runs on as opportunistic work."""
    leaves = [leaf for leaf in group.leaves() if leaf.reserving is None]
    vacate(estate, leaves)
    estate.undo.set(group, "lazily_preempted_by", preemptor)
    for seat in group.seats:
        estate.undo.set(seat, "virtual", None)
    seize(estate, [(leaf, None) for leaf in leaves], group.priority)


def _pair_of(group: Group, leaf: PhysicalCell) -> Pair:
    return next(pair for pair in group.pairs() if pair[0] is leaf)


def _by_age(groups: Iterable[Group | None]) -> tuple[Group, ...]:
    distinct = {group.serial: group for group in groups if group is not None}
    return tuple(distinct[serial] for serial in sorted(distinct))
