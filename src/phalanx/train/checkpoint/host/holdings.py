"""The slots of this seat: own snapshots, and copies of other ranks'."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.train.checkpoint.host.slot import Slot

REPLICAS_EACH = 2
"""A new copy never overwrites the only whole one."""


def own_name(number: int) -> str:
    return f"own-{number}"


def replica_name(source: int, number: int) -> str:
    return f"replica-{source}-{number}"


class Holdings:
    """Slots by name."""

    def __init__(self) -> None:
        self._slots: dict[str, Slot] = {}

    def __iter__(self) -> Iterator[Slot]:
        return iter(list(self._slots.values()))

    def put(self, slot: Slot) -> None:
        """Adds a slot, in place of the one of that name."""
        self.forget(slot.name)
        self._slots[slot.name] = slot

    def get(self, name: str) -> Slot:
        return self._slots[name]

    def __contains__(self, name: str) -> bool:
        return name in self._slots

    def forget(self, name: str) -> None:
        former = self._slots.pop(name, None)
        if former is not None:
            former.close()

    def find(self, rank: int, step: int) -> Slot | None:
        """The slot with the whole snapshot of a rank after a step."""
        return next((s for s in self if s.complete_step == step and s.header.rank == rank), None)

    def steps(self) -> dict[int, list[int]]:
        """For each rank the steps of which a whole snapshot is here."""
        steps: dict[int, list[int]] = {}
        for slot in self:
            step = slot.complete_step
            if step is not None:
                steps.setdefault(slot.header.rank, []).append(step)
        return steps

    def replica_target(self, source: int) -> Slot:
        """Where the next copy of a rank's snapshot goes: not over the newest whole one."""
        slots = [self.get(replica_name(source, n)) for n in range(REPLICAS_EACH) if replica_name(source, n) in self]
        if not slots:
            raise KeyError(f"this rank keeps no copies of rank {source}")
        return min(slots, key=lambda slot: -1 if slot.complete_step is None else slot.complete_step)
