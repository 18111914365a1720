"""The log that makes every change to cells reversible: old values, in the order in which they were replaced."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any


class Undo:
    """Writes through `set` and `did` are taken back by `undo_to`, the last first, exactly."""

    __slots__ = ("_depth", "_steps")

    def __init__(self) -> None:
        self._steps: list[tuple[Callable[..., object], Any, Any, Any]] = []
        self._depth = 0

    def set(self, thing: object, name: str, value: object) -> None:
        """Sets an attribute."""
        self._steps.append((setattr, thing, name, getattr(thing, name)))
        setattr(thing, name, value)

    def put(self, table: dict[Any, Any], key: object, value: object) -> None:
        """Sets a key that the table has, or a new one, which undoing takes out again."""
        if key in table:
            self._steps.append((dict.__setitem__, table, key, table[key]))
        else:
            self._steps.append((_forget, table, key, None))
        table[key] = value

    def drop(self, table: dict[Any, Any], key: object) -> None:
        """Takes a key out; undoing puts it at the end of the table."""
        self._steps.append((dict.__setitem__, table, key, table.pop(key)))

    def did(self, inverse: Callable[..., object], first: object, second: object = None, third: object = None) -> None:
        """Remembers how to take back something that has just been done."""
        self._steps.append((inverse, first, second, third))

    def mark(self) -> int:
        """A point to come back to."""
        return len(self._steps)

    def undo_to(self, mark: int) -> None:
        """Takes back every change since a mark."""
        steps = self._steps
        while len(steps) > mark:
            inverse, first, second, third = steps.pop()
            inverse(first, second, third)

    def step(self) -> Step:
        """A block whose changes are all kept, or, if it raises, all taken back."""
        return Step(self, keeps=True)

    def trial(self) -> Step:
        """A block whose changes are taken back at its end."""
        return Step(self, keeps=False)

    def opened(self) -> int:
        """Enters a block."""
        self._depth += 1
        return len(self._steps)

    def closed(self) -> None:
        """Leaves a block. Outside of all blocks nothing can be taken back any more."""
        self._depth -= 1
        if not self._depth:
            self._steps.clear()


class Step:
    """One block of changes."""

    __slots__ = ("_keeps", "_mark", "_undo")

    def __init__(self, undo: Undo, *, keeps: bool) -> None:
        self._undo = undo
        self._keeps = keeps
        self._mark = 0

    def __enter__(self) -> Step:
        self._mark = self._undo.opened()
        return self

    def cancel(self) -> None:
        """Takes back what the block has done so far."""
        self._undo.undo_to(self._mark)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None or not self._keeps:
            self.cancel()
        self._undo.closed()


def _forget(table: dict[Any, Any], key: object, _: object) -> None:
    del table[key]
