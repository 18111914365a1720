"""What a decision does with cells, step by step: a replay takes the same steps and searches for nothing."""

from __future__ import annotations

import msgspec


class CellSeat(msgspec.Struct, frozen=True, omit_defaults=True):
    """Leaves of one node, and the virtual leaves they stand for; none for an attempt that has no guarantee."""

    chain: str
    node: str
    indices: tuple[int, ...]
    virtual: tuple[str, ...] = ()


class Seated(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """An attempt has leaves, or waits for the attempts on them to leave. `downgraded` lost their guarantee to it."""

    attempt: str
    seats: tuple[CellSeat, ...]
    downgraded: tuple[str, ...] = ()


class Joined(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """An attempt shares a leaf with attempts of its virtual cluster; with `seat` it is the first on it."""

    attempt: str
    leaf: str
    seat: CellSeat | None = None
    downgraded: tuple[str, ...] = ()


class Grown(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """An elastic attempt has one more seat."""

    attempt: str
    seat: CellSeat


class Shrunk(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """An elastic attempt has given a seat back."""

    attempt: str
    node: str
    indices: tuple[int, ...]


class Left(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """An attempt that had no more than a claim has lost it."""

    attempt: str


CellStep = Seated | Joined | Grown | Shrunk | Left
