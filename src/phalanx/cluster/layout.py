"""Layouts: how the devices of one node are grouped by sockets and switches."""

from __future__ import annotations

from phalanx.cluster.bits import span


class Layout:
    """Groups of devices inside a node, one tuple of device sets per level, outermost first.

    Nodes of one shape share a Layout, so the answers it remembers serve all of them.
    """

    __slots__ = ("_picks", "gpus", "levels")

    def __init__(self, gpus: int, split: tuple[tuple[str, int], ...]) -> None:
        self.gpus = gpus
        self.levels: dict[str, tuple[int, ...]] = {
            level: tuple(span(part * gpus // parts, (part + 1) * gpus // parts) for part in range(parts))
            for level, parts in split
        }
        self._picks: dict[tuple[int, int], int] = {}

    def pick(self, free: int, count: int) -> int:
        """`count` of the free devices, as close together as they can be, leaving the other groups whole."""
        if free.bit_count() == count:
            return free
        if not self.levels:
            return _first(free, count)
        key = (free, count)
        picked = self._picks.get(key)
        if picked is None:
            picked = self._picks[key] = _pick(tuple(self.levels.values()), free, count)
        return picked

    def pick_within(self, level: str, free: int, count: int) -> int:
        """`count` free devices of one group of a level (the fullest that has them), or 0."""
        fitting = [group for group in self.levels.get(level, ()) if (free & group).bit_count() >= count]
        if not fitting:
            return 0
        return self.pick(free & min(fitting, key=lambda group: (free & group).bit_count()), count)


def _pick(levels: tuple[tuple[int, ...], ...], free: int, count: int) -> int:
    if not levels:
        return _first(free, count)
    groups, inner = levels[0], levels[1:]
    fitting = [group for group in groups if (free & group).bit_count() >= count]
    if fitting:
        return _pick(inner, free & min(fitting, key=lambda group: (free & group).bit_count()), count)
    fullest = max(groups, key=lambda group: (free & group).bit_count())
    taken = free & fullest
    return taken | _pick(levels, free & ~fullest, count - taken.bit_count())


def _first(free: int, count: int) -> int:
    picked = 0
    for _ in range(count):
        low = free & -free
        picked |= low
        free ^= low
    return picked
