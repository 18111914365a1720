"""Which step is brought back, and where each rank gets it: the newest one that all can have, from the nearest place."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from phalanx.train.checkpoint.copies.peers import Address


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a rank can give: snapshots in memory by rank, and the steps on its device, on its disk and in the store."""

    memory: Mapping[int, Sequence[int]]
    device: Sequence[int] = ()
    local: Sequence[int] = ()
    shared: Sequence[int] = ()
    address: Address | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """Where one rank gets its part: a tier, and for `peer` the rank that holds it."""

    tier: str
    holder: int | None = None


@dataclass(frozen=True, slots=True)
class Recovery:
    """One step, and a source for each rank."""

    step: int
    sources: tuple[Source, ...]
    addresses: tuple[Address | None, ...] = field(default=())


Refused = tuple[int, int, Source]
"""A rank, a step and a source that turned out not to give it."""


def plan(inventories: Sequence[Inventory], refused: Collection[Refused]) -> Recovery | None:
    """The newest step for which every rank has a source; None if there is none."""
    shared = sorted({step for inventory in inventories for step in inventory.shared})
    candidates = {
        *shared,
        *(step for inventory in inventories for steps in inventory.memory.values() for step in steps),
        *(step for inventory in inventories for step in (*inventory.local, *inventory.device)),
    }
    for step in sorted(candidates, reverse=True):
        sources = [_source(rank, step, inventories, shared, refused) for rank in range(len(inventories))]
        if all(sources):
            chosen = tuple(source for source in sources if source is not None)
            return Recovery(step, chosen, tuple(inventory.address for inventory in inventories))
    return None


def _source(
    rank: int, step: int, inventories: Sequence[Inventory], shared: Sequence[int], refused: Collection[Refused]
) -> Source | None:
    own = inventories[rank]
    found = []
    if step in own.device:
        found.append(Source("device"))
    if step in own.memory.get(rank, ()):
        found.append(Source("host"))
    for holder, other in enumerate(inventories):
        if holder != rank and step in other.memory.get(rank, ()) and other.address is not None:
            found.append(Source("peer", holder))
    if step in own.local:
        found.append(Source("local"))
    if step in shared:
        found.append(Source("shared"))
    return next((source for source in found if (rank, step, source) not in refused), None)
