"""Snapshots made durable: written to a disk of this machine or to a store that all ranks see."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, ItemsView, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from phalanx.train.checkpoint import points
from phalanx.train.checkpoint.host.slot import Slot

if TYPE_CHECKING:
    from phalanx.train.checkpoint.store import Fence, Medium, Retention

WRITE_THREADS = max(1, min(8, (os.cpu_count() or 1) // 2))


@dataclass(frozen=True, slots=True)
class Target:
    """A durable tier as one rank sees it. Where `ranks` are this one alone, it commits what it writes by itself."""

    tier: str
    medium: Medium
    fence: Fence
    keep: Retention | None
    ranks: tuple[int, ...]
    commit_timeout_s: float = 600.0

    @property
    def is_shared(self) -> bool:
        return self.tier == "shared"


@dataclass(frozen=True, slots=True)
class Persisted:
    """What one rank did: it committed the step, or it left that to the first rank."""

    step: int
    bytes: int
    seconds: float
    committed: bool


class LastWords(dict[str, Any]):
    """Small values that tell when they are asked for: by then the tensors are in the file, and it is still open."""

    def __init__(self, values: Mapping[str, Any], tell: Callable[[], None]) -> None:
        super().__init__(values)
        self._tell = tell

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        self._tell()
        return super().items()


class Persister:
    """Writes the snapshots of one rank."""

    def __init__(self, rank: int, world_size: int, trainer_pid: int) -> None:
        self._rank, self._world_size = rank, world_size
        self._trainer_pid = trainer_pid
        self.awaits_parts: set[str] = set()
        """The tiers whose part of this rank is written, and whose commit waits for the parts of other ranks."""

    def persist(self, target: Target, slot: Slot, metrics: Mapping[str, float]) -> Persisted:
        """Writes a snapshot, and commits it where that is this rank's part."""
        from phalanx.train.checkpoint.store import commit, write_step

        began_s = time.monotonic()
        record = slot.record()
        pieces = slot.pieces(record)
        if not target.is_shared:
            pieces = [replace(piece, replica=0, replicas=1) for piece in pieces]
        objects = LastWords(record.objects, lambda: self._reached("persist", record.step))
        written = write_step(
            target.medium,
            record.step,
            self._rank,
            self._world_size,
            pieces,
            objects,
            term=target.fence.term,
            threads=WRITE_THREADS,
        )
        commits = target.ranks[0] == self._rank
        if commits:
            self.awaits_parts.add(target.tier)
            try:
                commit(
                    target.medium,
                    record.step,
                    target.ranks,
                    term=target.fence.term,
                    whole=target.is_shared,
                    timeout_s=target.commit_timeout_s,
                    metrics=dict(metrics),
                    on_phase=lambda phase: self._on_phase(phase, target.tier, record.step),
                )
            finally:
                self.awaits_parts.discard(target.tier)
        return Persisted(record.step, written.bytes, time.monotonic() - began_s, commits)

    def retire(self, target: Target, step: int, common_step: int | None) -> None:
        """Takes old steps away, after `step` was committed. `common_step` is the newest that all ranks have on disk."""
        if target.keep is None:
            return
        from phalanx.train.checkpoint.store import retire

        retire(
            target.medium,
            target.keep,
            term=target.fence.term,
            # A disk holds one rank's part, which is worth nothing without the other ranks' parts of the same step.
            upto=None if target.is_shared else (-1 if common_step is None else common_step),
            on_removal=lambda url: self._reached("retire", step),
        )

    def _on_phase(self, phase: str, tier: str, step: int) -> None:
        if phase == "waited":
            self.awaits_parts.discard(tier)
        elif phase == "manifest":
            self._reached("commit", step)

    def _reached(self, point: str, step: int) -> None:
        points.reached(point, step, self._rank, self._trainer_pid)
