"""Stays: which jobs held devices of which nodes and when, the largest of them, and what each node was held for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappush, heapreplace

from phalanx.placement.placement import Placement
from phalanx.simulate.figures.result import NodeUse, Stay

STAYS_MAX = 20_000
"""Attempts that are kept one by one. A run of a hundred thousand jobs has more, and a chart draws far fewer."""

Kept = tuple[int, int, str, int, Placement, int, int]
"""GPU time, which comes first so that the smallest is the first to go; a number; job, attempt, where, since, until."""


@dataclass(slots=True)
class Stays:
    """Of all stays those that took the most GPU time, whenever that was; `left_out` counts the rest."""

    kept_max: int = STAYS_MAX
    left_out: int = 0
    kept: list[Kept] = field(default_factory=list)
    count: int = 0
    use: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, job: str, attempt: int, placement: Placement, since_ms: int, until_ms: int) -> None:
        """A stay is over."""
        held_ms = until_ms - since_ms
        gpu_ms = _count(self.use, placement, held_ms) if held_ms else 0
        kept = self.kept
        # Of equal ones the first are kept.
        self.count += 1
        if len(kept) < self.kept_max:
            heappush(kept, (gpu_ms, -self.count, job, attempt, placement, since_ms, until_ms))
            return
        self.left_out += 1
        if gpu_ms > kept[0][0]:
            heapreplace(kept, (gpu_ms, -self.count, job, attempt, placement, since_ms, until_ms))

    def seen_at(
        self, now_ms: int, present: list[tuple[str, int, Placement, int]]
    ) -> tuple[list[Stay], dict[str, NodeUse]]:
        """The stays and what every node was held for, with those (job, attempt, where, since) that are not over yet."""
        use = dict(self.use)
        stays = [stay for entry in sorted(self.kept, key=lambda entry: -entry[1]) for stay in _stays(*entry[2:])]
        for job, attempt, placement, since_ms in present:
            if now_ms > since_ms:
                _count(use, placement, now_ms - since_ms)
            stays.extend(_stays(job, attempt, placement, since_ms, now_ms))
        return stays, {node: NodeUse(count, gpu_ms / 1000) for node, (count, gpu_ms) in use.items()}


def _gpus_by_node(placement: Placement) -> dict[str, int]:
    slots = placement.slots
    if len(slots) == 1:
        return {slots[0].node: len(slots[0].devices)}
    gpus: dict[str, int] = {}
    for slot in slots:
        gpus[slot.node] = gpus.get(slot.node, 0) + len(slot.devices)
    return gpus


def _count(use: dict[str, tuple[int, int]], placement: Placement, held_ms: int) -> int:
    """Adds a stay to what its nodes were held for; the GPU time that it took."""
    in_all = 0
    for node, held in _gpus_by_node(placement).items():
        if held:
            stays, gpu_ms = use.get(node, (0, 0))
            use[node] = (stays + 1, gpu_ms + held * held_ms)
            in_all += held * held_ms
    return in_all


def _stays(job: str, attempt: int, placement: Placement, since_ms: int, until_ms: int) -> Iterator[Stay]:
    for node, gpus in _gpus_by_node(placement).items():
        yield Stay(job, attempt, node, gpus, since_ms / 1000, until_ms / 1000)
