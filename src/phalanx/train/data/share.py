"""A rank's share of a global batch, in micro-batches."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

from phalanx.errors import PhalanxError


@dataclass(frozen=True, slots=True)
class Member:
    """One rank among those that share every batch."""

    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise PhalanxError(f"rank {self.rank} is none of a world of {self.world_size}")

    @classmethod
    def of_this_job(cls) -> Member:
        """By the process group, else by RANK and WORLD_SIZE, else alone."""
        dist: Any = sys.modules.get("torch.distributed")
        if dist is not None and dist.is_available() and dist.is_initialized():
            return cls(dist.get_rank(), dist.get_world_size())
        return cls(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Positions that a rank computes at once, and the factor of their mean loss.

    With it the gradients, added over the micro-batches of a step and averaged over the ranks, are those of the mean
    over the whole batch, also where ranks have different numbers of samples. Padding has the factor 0 and is not
    counted.
    """

    positions: tuple[int, ...]
    scale: float


def micro_batches(batch: range, member: Member, size: int | None) -> list[MicroBatch]:
    """The rank's micro-batches of a batch. All ranks have as many, so that their collectives match.

    A rank takes every so-manieth position: of files that are read in lanes, always the same lanes.
    """
    own = batch[member.rank :: member.world_size]
    most = -(-len(batch) // member.world_size)
    size = size or most
    parts = [own[first : first + size] for first in range(0, most, size)]
    factor = member.world_size / len(batch)
    return [MicroBatch(tuple(part) or (batch[0],), len(part) * factor) for part in parts]
