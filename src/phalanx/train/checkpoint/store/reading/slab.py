"""Rows of a stored box that are read and checked together."""

from __future__ import annotations

import math

from phalanx.train.checkpoint.store.digest import Bytes, digest

# Small enough to read a part of a large tensor without much of the rest, large enough for a fast disk.
SLAB_BYTES = 4 << 20


def row_bytes(sizes: tuple[int, ...], itemsize: int) -> int:
    """Bytes of one row: all dimensions but the first."""
    return math.prod(sizes[1:]) * itemsize


def slab_rows(sizes: tuple[int, ...], itemsize: int) -> int:
    """How many rows make a slab: about SLAB_BYTES of them, at least one, and no more than there are."""
    rows = sizes[0] if sizes else 1
    return max(1, min(rows, SLAB_BYTES // max(1, row_bytes(sizes, itemsize))))


def slab_digests(raw: Bytes, slab_bytes: int) -> tuple[str, ...]:
    """The digest of each slab of a box's bytes."""
    view = memoryview(raw)
    return tuple(digest(view[at : at + slab_bytes]) for at in range(0, len(view), slab_bytes))
