"""Which bytes of a snapshot go straight to the host, and which by way of the scratch.

The scratch is an image of the slot's end, from `cut` on. What lies in front of the cut is copied straight to the slot;
what lies behind it goes to the scratch first, which drains to the slot afterwards. Nearly all tensors lie on one
side, within one pinned stretch: these are copied as they are, into views that are made once for all snapshots of an
arrangement. The few that the cut or the end of a stretch goes through are copied in parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from phalanx.train.checkpoint.host.segment import PIN_BYTES
from phalanx.train.checkpoint.host.slot import Slot
from phalanx.train.checkpoint.snapshots.arrangement import DATA_OFFSET, Arrangement, Entry, padded
from phalanx.train.checkpoint.snapshots.snapshot import copy_all

BATCH_BYTES_MAX = 16 << 20
BATCHED = frozenset(
    {torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8}
)
"""Within a device, tensors that are smaller and of these types are copied in batches, each by one kernel that knows
them; all the rest are copied each by the device's own copy."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A part of a tensor, in bytes, and where it goes."""

    number: int
    start: int
    stop: int
    goal: torch.Tensor


@dataclass(slots=True)
class Leg:
    """Copies of one kind: tensors by their numbers, each with where it goes, and parts of tensors."""

    numbers: list[int] = field(default_factory=list)
    goals: list[torch.Tensor] = field(default_factory=list)
    singles: list[tuple[int, torch.Tensor]] = field(default_factory=list)
    """Tensors that are copied each by a call of its own."""
    cuts: list[Cut] = field(default_factory=list)

    def add(self, number: int, goal: torch.Tensor) -> None:
        self.numbers.append(number)
        self.goals.append(goal)

    def __bool__(self) -> bool:
        return bool(self.numbers or self.singles or self.cuts)

    def run(self, tensors: Sequence[torch.Tensor]) -> None:
        """Issues the copies, on the current stream."""
        copy_all(self.goals, [tensors[number] for number in self.numbers], non_blocking=True)
        for number, goal in self.singles:
            goal.copy_(tensors[number].detach(), non_blocking=True)
        for cut in self.cuts:
            cut.goal.copy_(as_bytes(tensors[cut.number])[cut.start : cut.stop], non_blocking=True)


@dataclass(slots=True)
class Moves:
    """All copies of a snapshot. Hasty are those of tensors that the forward pass may change, calm all the rest."""

    on_host: Leg = field(default_factory=Leg)
    """Of tensors that lie in host memory already."""
    direct_hasty: Leg = field(default_factory=Leg)
    direct_calm: Leg = field(default_factory=Leg)
    staged_hasty: Leg = field(default_factory=Leg)
    staged_calm: Leg = field(default_factory=Leg)


def moves_of(
    arrangement: Arrangement,
    on_device: Sequence[bool],
    calm: int,
    slot: Slot,
    scratch: torch.Tensor,
    cut: int,
) -> Moves:
    """Sorts all tensors; `on_device` says which of them lie there, the first `calm` are calm."""
    moves = Moves()
    for number, (entry, goal) in enumerate(zip(arrangement, slot.tensors(arrangement), strict=True)):
        hasty = number >= calm
        direct = moves.direct_hasty if hasty else moves.direct_calm
        staged = moves.staged_hasty if hasty else moves.staged_calm
        stop = entry.position + entry.nbytes
        if not entry.nbytes:
            continue
        if not on_device[number]:
            moves.on_host.add(number, goal)
        elif entry.position >= cut:
            image = view_of(scratch, entry, entry.position - cut)
            if entry.nbytes > BATCH_BYTES_MAX or entry.dtype not in BATCHED:
                staged.singles.append((number, image))
            else:
                staged.add(number, image)
        elif stop <= cut and entry.position // PIN_BYTES == (stop - 1) // PIN_BYTES:
            direct.add(number, goal)
        else:
            below = min(cut - entry.position, entry.nbytes)
            for start, end in stretches(entry.position, entry.position + below):
                part = slot.segment.bytes[start:end]
                direct.cuts.append(Cut(number, start - entry.position, end - entry.position, part))
            if below < entry.nbytes:
                staged.cuts.append(Cut(number, below, entry.nbytes, scratch[: entry.nbytes - below]))
    return moves


def cut_of(arrangement: Arrangement, on_device: Sequence[bool], scratch_bytes: int) -> int:
    """From where on the scratch is an image of the slot: as large as it is, but with no tensor of the host behind.

    Such a tensor is copied to the slot at once, and the scratch, which does not have it, would drain over it.
    """
    least = DATA_OFFSET
    if not all(on_device):
        last = arrangement[len(on_device) - 1 - on_device[::-1].index(False)]
        least = last.position + padded(last.nbytes)
    return max(least, DATA_OFFSET + arrangement.data_bytes - scratch_bytes)


def view_of(memory: torch.Tensor, entry: Entry, position: int) -> torch.Tensor:
    """The bytes at a position, seen as what the entry says."""
    return memory[position : position + entry.nbytes].view(entry.dtype).view(entry.sizes)


def stretches(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """A range cut where one pinned stretch ends and the next begins: CUDA copies within one only."""
    while start < stop:
        middle = min(stop, (start // PIN_BYTES + 1) * PIN_BYTES)
        yield start, middle
        start = middle


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().view(-1).view(torch.uint8)
