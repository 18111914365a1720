"""The host memory of one seat: found again, given space, cleared of what no rank needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from phalanx.train.checkpoint.host.holdings import REPLICAS_EACH, Holdings, own_name, replica_name
from phalanx.train.checkpoint.host.keeper import Keeper
from phalanx.train.checkpoint.host.segment import Segment, require_memory
from phalanx.train.checkpoint.host.slot import Slot

PACE = "pace"
PACE_BYTES = 4096


class Memory:
    """Slots in memory that a keeper holds."""

    def __init__(self, keeper: Keeper) -> None:
        self.keeper = keeper
        self.holdings = Holdings()
        self._lend: Callable[[Segment], None] = lambda segment: None
        self._forget: Callable[[str], None] = lambda name: None
        for name in keeper.segments():
            if name != PACE:
                self.holdings.put(Slot(Segment(name, keeper.open(name))))
        self.pace = Segment(PACE, keeper.create(PACE, PACE_BYTES))

    def lend_to(self, lend: Callable[[Segment], None], forget: Callable[[str], None]) -> None:
        """Shows all segments, now and later."""
        self._lend, self._forget = lend, forget
        for slot in self.holdings:
            lend(slot.segment)
        lend(self.pace)

    def own(self, count: int) -> list[Slot]:
        """The slots of this rank's own snapshots, as far as they exist."""
        return [self.holdings.get(own_name(n)) for n in range(count) if own_name(n) in self.holdings]

    def make_room(self, count: int, size: int) -> None:
        """Sees to it that there are so many slots of at least that size for own snapshots."""
        self._make([own_name(number) for number in range(count)], size)

    def make_room_for_replicas(self, sizes: Mapping[int, int]) -> None:
        """Makes space for copies of other ranks' snapshots, by rank; drops all other copies."""
        wanted = {replica_name(source, n): size for source, size in sizes.items() for n in range(REPLICAS_EACH)}
        for slot in self.holdings:
            if slot.name.startswith("replica-") and slot.name not in wanted:
                self.drop(slot.name)
        for name, size in wanted.items():
            self._make([name], size)

    def keep_only(self, step: int, ranks: list[int]) -> None:
        """Forgets all snapshots but those of a step, of these ranks."""
        for slot in self.holdings:
            header = slot.header
            if slot.complete_step != step or header.rank not in ranks:
                slot.clear()

    def close(self) -> None:
        """Lets go of everything here; what the keeper keeps is its own affair."""
        for slot in self.holdings:
            self.holdings.forget(slot.name)
        self.pace.close()

    def drop(self, name: str) -> None:
        self.holdings.forget(name)
        self.keeper.drop(name)
        self._forget(name)

    def _make(self, names: list[str], size: int) -> None:
        missing = [n for n in names if n not in self.holdings or self.holdings.get(n).segment.size < size]
        require_memory(len(missing) * size, f"room for {len(missing)} snapshots")
        for name in missing:
            if name in self.holdings:
                self.drop(name)
            slot = Slot(Segment(name, self.keeper.create(name, size)))
            self.holdings.put(slot)
            self._lend(slot.segment)
