"""Maxima: the greatest of any stretch of a list that only grows, without going through all of it."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar


class Ordered(Protocol):
    """What can be compared."""

    def __lt__(self, other: Any, /) -> bool:
        """Whether it is less."""


Thing = TypeVar("Thing", bound=Ordered)

BLOCK = 32
"""Things of which the greatest is kept once they are complete, and so on for the greatest of so many blocks."""


class Maxima(Generic[Thing]):
    """A list, and the greatest of each of its blocks, of each block of these, and so on."""

    def __init__(self) -> None:
        self._levels: list[list[Thing]] = [[]]

    def append(self, thing: Thing) -> None:
        """Takes one more in."""
        for level in range(len(self._levels) + 1):
            if level == len(self._levels):
                self._levels.append([])
            things = self._levels[level]
            things.append(thing)
            if len(things) % BLOCK:
                return
            thing = max(things[-BLOCK:])

    def greatest(self, begin: int, end: int, level: int = 0) -> Thing:
        """The greatest of those from `begin` up to but not including `end`, of whom there is at least one."""
        things = self._levels[level]
        first, last = -(-begin // BLOCK), end // BLOCK
        if last - first < 2:
            return max(things[begin:end])
        found = self.greatest(first, last, level + 1)
        return max([found, *things[begin : first * BLOCK], *things[last * BLOCK : end]])
