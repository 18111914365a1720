"""Copying the state to host memory while training goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from phalanx.errors import PhalanxError
from phalanx.train.checkpoint.contents.piece import Piece
from phalanx.train.checkpoint.host.slot import Record, Slot
from phalanx.train.checkpoint.snapshots.arrangement import Entry


class NotFiniteError(PhalanxError):
    """The state holds NaN or infinity, and was not to be kept then."""


@dataclass(frozen=True, slots=True)
class Sitting:
    """One snapshot to be taken: what of, where to, and what else to write down."""

    tensors: list[torch.Tensor]
    """In the order of the record's entries."""
    slot: Slot
    record: Record
    calm: int
    """So many of the first tensors are copied at once, or are not changed before the next `optimizer.step`."""
    refuse_nan: bool
    halfway: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Taken:
    """What a snapshot was like: how long training stood still for it, and how long copying took."""

    step: int
    blocked_s: float
    seconds: float
    bytes: int
    fault: str | None = None


class Copier(Protocol):
    """Takes snapshots, one after the other."""

    def begin(self, sitting: Sitting) -> None:
        """Starts to copy. May return before all is copied."""

    def fence(self) -> None:
        """Called before an optimiser changes what may not be copied yet."""

    def mark_step(self) -> None:
        """Called at the end of every step, for measuring."""

    def take_finished(self, wait: bool) -> list[Taken]:
        """The snapshots that have become whole since the last call; with `wait`, all that were begun."""

    def prepare(self, slots: Sequence[Slot]) -> None:
        """Gets slots ready for snapshots, without waiting."""

    def is_preparing(self, slots: Sequence[Slot]) -> bool:
        """Whether slots are still being got ready, so that a snapshot would have to wait."""

    def await_prepared(self, slots: Sequence[Slot]) -> None:
        """Waits until they are ready, or turn out not to become so, which the next snapshot then tells."""

    def fill(self, pieces: Sequence[Piece], entries: Sequence[Entry], slot: Slot) -> None:
        """Copies a snapshot back into the state."""

    def facts(self) -> dict[str, Any]:
        """What was measured and chosen, for people."""

    def close(self) -> None:
        """Frees what was taken for copying."""


class HostCopier:
    """For a state in host memory: copies at once, since there is no engine that would do it alongside."""

    def __init__(self) -> None:
        self._finished: list[Taken] = []

    def begin(self, sitting: Sitting) -> None:
        began_s = time.monotonic()
        middle = len(sitting.tensors) // 2
        goals = sitting.slot.tensors(sitting.record.entries)
        copy_all(goals[:middle], sitting.tensors[:middle])
        sitting.halfway()
        copy_all(goals[middle:], sitting.tensors[middle:])
        fault = None
        if sitting.refuse_nan and (bad := not_finite(sitting.record.entries, sitting.tensors)):
            fault = refusal(sitting.record.step, bad)
            sitting.slot.clear()
        else:
            sitting.slot.finish(sitting.record)
        seconds = time.monotonic() - began_s
        self._finished.append(Taken(sitting.record.step, seconds, seconds, sitting.record.entries.nbytes, fault))

    def fence(self) -> None:
        """All is copied already."""

    def mark_step(self) -> None:
        """There is nothing to measure."""

    def take_finished(self, wait: bool) -> list[Taken]:
        finished, self._finished = self._finished, []
        return finished

    def prepare(self, slots: Sequence[Slot]) -> None:
        """They are ready."""

    def is_preparing(self, slots: Sequence[Slot]) -> bool:
        return False

    def await_prepared(self, slots: Sequence[Slot]) -> None:
        """They are ready."""

    def fill(self, pieces: Sequence[Piece], entries: Sequence[Entry], slot: Slot) -> None:
        copy_all([piece.tensor for piece in pieces], [slot.tensor(entry) for entry in entries])

    def facts(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        """Nothing was taken."""


def copy_all(goals: Sequence[torch.Tensor], sources: Sequence[torch.Tensor], *, non_blocking: bool = False) -> None:
    """Copies tensor by tensor, in one call: a call from Python for each of thousands takes longer than the bytes."""
    if goals:
        with torch.no_grad():
            torch._foreach_copy_(list(goals), list(sources), non_blocking=non_blocking)


def not_finite(entries: Sequence[Entry], tensors: Sequence[torch.Tensor]) -> list[str]:
    """The names of tensors with NaN or infinity in them."""
    return [
        entry.fqn
        for entry, tensor in zip(entries, tensors, strict=True)
        if (entry.dtype.is_floating_point or entry.dtype.is_complex) and not bool(torch.isfinite(tensor).all())
    ]


def refusal(step: int, names: Sequence[str]) -> str:
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"step {step} was not kept: there are NaN or infinite values in {shown}; the last step before it stays"
