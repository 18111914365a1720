"""Where each piece of a rank's state lies in a slot."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    import torch

    from phalanx.train.checkpoint.contents.piece import Piece

DATA_OFFSET = 4096
ALIGNMENT = 512


@dataclass(frozen=True, slots=True)
class Entry:
    """A piece without its bytes, and where in the slot these lie."""

    fqn: str
    global_shape: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    dtype: torch.dtype
    replica: int
    replicas: int
    position: int
    nbytes: int

    @property
    def row(self) -> tuple[Any, ...]:
        """The values of all fields, in their order."""
        return (
            self.fqn,
            self.global_shape,
            self.offsets,
            self.sizes,
            self.dtype,
            self.replica,
            self.replicas,
            self.position,
            self.nbytes,
        )


class Arrangement(Sequence[Entry]):
    """The entries of a snapshot, one after the other. Pickled once: all snapshots of a layout carry the same bytes."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = tuple(entries)

    @overload
    def __getitem__(self, index: int) -> Entry: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Entry, ...]: ...

    def __getitem__(self, index: int | slice) -> Entry | tuple[Entry, ...]:
        return self._entries[index]

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Arrangement) and self._entries == other._entries

    def __hash__(self) -> int:
        return hash(self._entries)

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return unpacked, (self.packed,)

    @cached_property
    def packed(self) -> bytes:
        """The entries as bytes. Plain values: of thousands of dataclasses each would be packed by Python code."""
        return pickle.dumps([entry.row for entry in self._entries], protocol=5)

    @cached_property
    def data_bytes(self) -> int:
        """The bytes of all pieces, each rounded up to where the next one begins."""
        return sum(padded(entry.nbytes) for entry in self._entries)

    @cached_property
    def nbytes(self) -> int:
        """The bytes of all pieces."""
        return sum(entry.nbytes for entry in self._entries)


def unpacked(packed: bytes) -> Arrangement:
    return Arrangement([Entry(*row) for row in pickle.loads(packed)])


def arrange(pieces: Sequence[Piece]) -> Arrangement:
    """Puts the pieces one after the other."""
    entries = []
    position = DATA_OFFSET
    for piece in pieces:
        nbytes = piece.nbytes
        entries.append(
            Entry(
                piece.fqn,
                piece.global_shape,
                piece.offsets,
                piece.sizes,
                piece.dtype,
                piece.replica,
                piece.replicas,
                position,
                nbytes,
            )
        )
        position += padded(nbytes)
    return Arrangement(entries)


def padded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
