"""Placements: the exact devices every task of a gang gets, or why there are none."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from phalanx.cluster.device import Portion


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one task runs. `rank` counts the job's tasks; `role` is the path of role names, as in replica/worker.

    Devices are whole ones, unless `portion` says which part of the one device the task has.
    """

    rank: int
    role: str
    node: str
    devices: tuple[int, ...] = ()
    portion: Portion | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """All slots of a gang, in rank order. `mesh` orders the devices by parallel rank, where the job has a plan."""

    slots: tuple[Slot, ...]
    mesh: tuple[tuple[str, int], ...] = ()

    @property
    def gpus(self) -> int:
        """GPUs taken in all."""
        return sum(len(slot.devices) for slot in self.slots)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes used, each once, in rank order."""
        return tuple(dict.fromkeys(slot.node for slot in self.slots))


def in_place(old: Placement, new: Placement) -> bool:
    """Whether two placements differ in nothing but in what their shares are worth: nothing that is counted changes.

    That is which jobs a job shares its turn with, and the compute of what is revocable and the memory lent to it, which
    no job is promised.
    """
    return old != new and len(old.slots) == len(new.slots) and all(map(_counts_the_same, old.slots, new.slots))


def _counts_the_same(old: Slot, new: Slot) -> bool:
    was, will_be = old.portion, new.portion
    if was is None or will_be is None:
        return old == new
    places = [(slot.rank, slot.role, slot.node, slot.devices) for slot in (old, new)]
    return places[0] == places[1] and _counted(was) == _counted(will_be)


def _counted(portion: Portion) -> tuple[object, ...]:
    """What of a portion no other job can have; revocable compute any job can."""
    return (
        *(portion.mode, portion.memory_mb, portion.mig_profile, portion.mig_offset, portion.turns, portion.turn),
        None if portion.revocable else portion.compute_permille,
    )


class Lack(StrEnum):
    """What a gang that does not fit lacks: the dominant cause, from the most lasting to the most passing."""

    NEVER = "never"
    UNHEALTHY = "unhealthy"
    AMOUNT = "amount"
    GPUS = "gpus"
    TOPOLOGY = "topology"
    FRAGMENTED = "fragmented"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a gang does not fit: the dominant lack, and how many nodes each predicate in turn rules out.

    `role` is the one that lacks, if one does that is not the one with most GPUs. `short_of` names what is short beside
    free GPUs where nodes have enough of it for single tasks, but not for all.
    """

    lack: Lack
    nodes: int
    ruled_out: tuple[tuple[str, int], ...]
    gpus_free: int
    gpus_needed: int
    role: str = ""
    short_of: str = ""
