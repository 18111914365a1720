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
    """Why a gang does not fit: the dominant lack, and how many nodes each predicate in turn rules out."""

    lack: Lack
    nodes: int
    ruled_out: tuple[tuple[str, int], ...]
    gpus_free: int
    gpus_needed: int
    detail: str = ""
