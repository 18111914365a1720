"""The line of a cluster with virtual clusters: higher priorities first, and among those of one the order of the policy.

Inside a virtual cluster the higher priority preempts the lower, and whoever has a guarantee preempts those who have
none. If they come first, nobody of a plan gives way to another of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.engine.heads import Entry, Heads
from phalanx.engine.state import State
from phalanx.placement.cells.ask import priority_of


class CellHeads(Heads):
    """Entries by priority, the first in the order of each priority first."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._ranks: dict[int, Heads] = {}

    def __bool__(self) -> bool:
        return any(self._ranks.values())

    def __iter__(self) -> Iterator[Entry]:
        for heads in self._ranks.values():
            yield from heads

    def add(self, entries: list[Entry]) -> None:
        """Takes in many at once."""
        filled: dict[int, list[Entry]] = {}
        for entry in entries:
            filled.setdefault(self._priority(entry), []).append(entry)
        for priority, some in filled.items():
            self._rank(priority).add(some)

    def push(self, entry: Entry) -> None:
        """Takes one in."""
        self._rank(self._priority(entry)).push(entry)

    def pop(self) -> Entry:
        """Gives out the first."""
        touched = dict(self.state.touched)
        for heads in self._ranks.values():
            self.state.touched.update(touched)
            heads.catch_up()
        return self._ranks[max(priority for priority, heads in self._ranks.items() if heads)].pop()

    def _rank(self, priority: int) -> Heads:
        if priority not in self._ranks:
            touched = dict(self.state.touched)
            self._ranks[priority] = Heads(self.state)
            self.state.touched.update(touched)
        return self._ranks[priority]

    def _priority(self, entry: Entry) -> int:
        return priority_of(self.state.jobs[entry[1]].job)
