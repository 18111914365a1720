"""Queues of other systems, which name the queue they lie in, as a tree with paths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from phalanx.cluster.formats.limits import GPUS_MAX, QUEUE_LEVELS_MAX
from phalanx.cluster.queues import Queue, Quota, QuotaConflict, settled
from phalanx.document import Field
from phalanx.document.field import CPUS_MAX, MB_PER_GB, MEMORY_GB_MAX

PLENTY = Quota(1000 * GPUS_MAX, 1000 * CPUS_MAX * GPUS_MAX, MB_PER_GB * MEMORY_GB_MAX * GPUS_MAX)
"""More than any cluster has: what the queues of a file contradict one another about is wrong on all of them."""


@dataclass(frozen=True, slots=True)
class Named:
    """A queue by its own name, the name of the queue it lies in (empty at the top), and what is lost of it here."""

    place: Field
    name: str
    parent: str
    queue: Queue
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Imported:
    """The queues of another system, and in words what of them has no counterpart here."""

    queues: tuple[Queue, ...]
    notes: tuple[str, ...]


def as_tree(named: tuple[Named, ...]) -> Imported:
    """The queues by path, outer ones first; what cannot be a tree, or contradicts itself, is an error at its place."""
    by_name: dict[str, Named] = {}
    for each in named:
        if each.name in by_name:
            first = by_name[each.name].place.line
            raise each.place.error(f"the queue '{each.name}' is given twice, first on line {first}")
        by_name[each.name] = each
    paths = {each.name: "/".join(reversed(list(_upwards(each, by_name)))) for each in named}
    ordered = sorted(named, key=lambda each: paths[each.name].count("/"))
    queues = tuple(replace(each.queue, path=paths[each.name]) for each in ordered)
    places = {paths[each.name]: each.place for each in named}
    try:
        settled(queues, PLENTY)
    except QuotaConflict as conflict:
        raise places[conflict.path].error(str(conflict)) from None
    return Imported(queues, tuple(f"queue {paths[each.name]}: {lost}" for each in ordered for lost in each.lost))


def _upwards(named: Named, by_name: dict[str, Named]) -> Iterator[str]:
    """The name of a queue and of those it lies in, from the inside to the outside."""
    passed: dict[str, None] = {}
    each = named
    while True:
        if each.name in passed:
            raise named.place.error(f"the queue '{named.name}' lies in itself: {' in '.join([*passed, each.name])}")
        passed[each.name] = None
        yield each.name
        if not each.parent:
            break
        if each.parent not in by_name:
            raise each.place.error(f"the queue '{each.name}' lies in '{each.parent}', which is not in this file")
        each = by_name[each.parent]
    if len(passed) > QUEUE_LEVELS_MAX:
        raise named.place.error(f"queues lie at most {QUEUE_LEVELS_MAX} deep in one another")
