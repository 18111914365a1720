"""Where jobs were before they lost hardware."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from phalanx.engine.state.records import AttemptRecord, JobRecord
from phalanx.engine.state.state import State
from phalanx.placement.placement import Placement, Slot


def remember(state: State, record: JobRecord, attempt: AttemptRecord) -> None:
    """Takes note of where an attempt ran whose job goes on: if hardware has failed under it, on what is left."""
    if state.cluster.recovery is not None and attempt.started_ms >= 0 and attempt.gpus:
        record.former = attempt.placement
        state.replacing[record.job.id] = None


def forget(state: State, record: JobRecord) -> None:
    """It runs again, or was stopped for another reason since."""
    if record.former is not None:
        record.former = None
        state.replacing.pop(record.job.id, None)


def in_former_order(former: Placement, placement: Placement) -> Placement:
    """A new place with the ranks of the former one, as far as it has the same nodes."""
    slots = placement.slots
    if placement.mesh or any(slot.portion is not None for slot in slots) or _roles(former.slots) != _roles(slots):
        return placement
    ordered: list[Slot] = []
    for role in dict.fromkeys(slot.role for slot in slots):
        ordered += _matched(
            [slot for slot in former.slots if slot.role == role], [slot for slot in slots if slot.role == role]
        )
    return replace(placement, slots=tuple(sorted(ordered, key=lambda slot: slot.rank)))


def _roles(slots: Iterable[Slot]) -> list[str]:
    return sorted(slot.role for slot in slots)


def _matched(former: list[Slot], slots: list[Slot]) -> list[Slot]:
    """The slots of one role, those on a node that it had before with the rank that they had there."""
    ranks = [slot.rank for slot in slots]
    left = list(slots)
    places: list[Slot | None] = []
    for was in former:
        same = [slot for slot in left if slot.node == was.node]
        stays = next((slot for slot in same if slot.devices == was.devices), same[0] if same else None)
        if stays is not None:
            left.remove(stays)
        places.append(stays)
    rest = iter(left)
    return [
        replace(stays if stays is not None else next(rest), rank=rank)
        for rank, stays in zip(ranks, places, strict=True)
    ]
