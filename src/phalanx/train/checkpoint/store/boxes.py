"""Boxes of index space, many at a time, and which of them meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from phalanx.train.checkpoint.store.digest import running
from phalanx.train.checkpoint.store.kept import Kept

Integers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

# A dense table of the cells of a grid may be this much larger than the number of boxes in it.
SPARSEST_GRID = 4
PLANS: Kept[tuple[Integers, Integers]] = Kept(2048)


@dataclass(frozen=True, slots=True)
class Boxes:
    """Boxes of one tensor: number i runs from `lows[i]` up to, not including, `highs[i]`."""

    lows: Integers
    highs: Integers

    @classmethod
    def of(cls, offsets: Sequence[Sequence[int]], sizes: Sequence[Sequence[int]]) -> Boxes:
        """A box without dimensions, a scalar's, counts as a row of one."""
        if offsets and not offsets[0]:
            offsets, sizes = [(0,)] * len(offsets), [(1,)] * len(sizes)
        dimensions = len(offsets[0]) if offsets else 1
        lows = np.asarray(offsets, dtype=np.int64).reshape(len(offsets), dimensions)
        return cls(lows, lows + np.asarray(sizes, dtype=np.int64).reshape(len(sizes), dimensions))

    def __len__(self) -> int:
        return len(self.lows)

    @property
    def volumes(self) -> Integers:
        volumes: Integers = np.prod(self.highs - self.lows, axis=1, dtype=np.int64)
        return volumes


def meetings(stored: Boxes, wanted: Boxes) -> tuple[Integers, Integers]:
    """All pairs (stored, wanted) that have an element in common.

    The answer is kept: tensors of one shape and layout share it, and so do plans that are made again.
    """
    if not len(stored) or not len(wanted):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    question = running()
    for each in (stored.lows, stored.highs, wanted.lows, wanted.highs):
        question.update(f"{each.shape}".encode())
        question.update(each.tobytes())
    return PLANS.answer(question.hexdigest(), lambda: work_out(stored, wanted))


def work_out(stored: Boxes, wanted: Boxes) -> tuple[Integers, Integers]:
    found, asking = candidates(stored, wanted)
    low = np.maximum(stored.lows[found], wanted.lows[asking])
    high = np.minimum(stored.highs[found], wanted.highs[asking])
    meet = np.all(low < high, axis=1)
    return found[meet], asking[meet]


def candidates(stored: Boxes, wanted: Boxes) -> tuple[Integers, Integers]:
    """Pairs that may meet; hardly more than do, whatever the number of boxes."""
    starts = [np.unique(column) for column in stored.lows.T]
    cells = int(np.prod([len(each) for each in starts], dtype=np.float64))
    if cells <= SPARSEST_GRID * len(stored) and is_grid(stored, starts):
        return by_grid(stored, wanted, starts, cells)
    return by_sweep(stored, wanted, starts)


def is_grid(stored: Boxes, starts: list[Integers]) -> bool:
    """Whether each box lies in one cell of the grid that the boxes' own starts draw, and has it for itself."""
    for dimension, lines in enumerate(starts):
        first = np.searchsorted(lines, stored.lows[:, dimension], "right")
        if np.any(np.searchsorted(lines, stored.highs[:, dimension], "left") > first):
            return False
    cell = cell_numbers([np.searchsorted(lines, stored.lows[:, d]) for d, lines in enumerate(starts)], starts)
    return len(np.unique(cell)) == len(stored)


def by_grid(stored: Boxes, wanted: Boxes, starts: list[Integers], cells: int) -> tuple[Integers, Integers]:
    """Sharding by whole dimensions, evenly or not, makes a grid: each wanted box looks up the cells it touches."""
    owner = np.full(cells, -1, np.int64)
    home = [np.searchsorted(lines, stored.lows[:, d]) for d, lines in enumerate(starts)]
    owner[cell_numbers(home, starts)] = np.arange(len(stored))
    firsts, counts = [], []
    for dimension, lines in enumerate(starts):
        first = np.maximum(np.searchsorted(lines, wanted.lows[:, dimension], "right") - 1, 0)
        firsts.append(first)
        counts.append(np.maximum(np.searchsorted(lines, wanted.highs[:, dimension], "left") - first, 0))
    asking, within = spread(np.prod(counts, axis=0, dtype=np.int64))
    place = []
    for first, count in zip(reversed(firsts), reversed(counts), strict=True):
        place.append(first[asking] + within % count[asking])
        within = within // count[asking]
    found = owner[cell_numbers(place[::-1], starts)]
    return found[found >= 0], asking[found >= 0]


def by_sweep(stored: Boxes, wanted: Boxes, starts: list[Integers]) -> tuple[Integers, Integers]:
    """Any boxes at all: sorted along the dimension that is cut most, each wanted box looks at those near it."""
    dimension = int(np.argmax([len(each) for each in starts]))
    order = np.argsort(stored.lows[:, dimension], kind="stable")
    lows = stored.lows[order, dimension]
    longest = np.max(stored.highs[:, dimension] - stored.lows[:, dimension])
    first = np.searchsorted(lows, wanted.lows[:, dimension] - longest, "right")
    last = np.searchsorted(lows, wanted.highs[:, dimension], "left")
    asking, within = spread(np.maximum(last - first, 0))
    return order[first[asking] + within], asking


def cell_numbers(place: Sequence[Integers], starts: list[Integers]) -> Integers:
    number = np.zeros(len(place[0]), np.int64)
    for position, lines in zip(place, starts, strict=True):
        number = number * len(lines) + position
    return number


def spread(counts: Integers) -> tuple[Integers, Integers]:
    """For counts 2, 0, 3: the place of each count (0 0 2 2 2) and the how-manieth of it (0 1 0 1 2)."""
    whose = np.repeat(np.arange(len(counts)), counts)
    return whose, np.arange(len(whose)) - np.repeat(np.cumsum(counts) - counts, counts)
