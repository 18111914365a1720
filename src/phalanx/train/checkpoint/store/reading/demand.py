"""What ranks want loaded."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from phalanx.train.checkpoint.contents.piece import Piece
from phalanx.train.checkpoint.store.boxes import Boxes, Integers


@dataclass(frozen=True, slots=True)
class Request:
    """What one rank wants, in columns, so that a thousand ranks' requests are put together quickly.

    For each number of dimensions a table with a row for each piece: the place of its name in `names`, its number in the
    rank's list, the lows of its box, the highs of its box.
    """

    names: list[str]
    tables: dict[int, Integers]

    @classmethod
    def of(cls, pieces: Sequence[Piece], without: Collection[str] = ()) -> Request:
        """Empty pieces want nothing; nor do those of the tensors in `without`."""
        names: dict[str, int] = {}
        rows: dict[int, list[list[int]]] = {}
        for number, piece in enumerate(pieces):
            if piece.nbytes and piece.fqn not in without:
                name = names.setdefault(piece.fqn, len(names))
                # A scalar counts as a row of one, as it does among boxes.
                lows, sizes = (piece.offsets, piece.sizes) if piece.sizes else ((0,), (1,))
                highs = [low + size for low, size in zip(lows, sizes, strict=True)]
                rows.setdefault(len(lows), []).append([name, number, *lows, *highs])
        return cls(list(names), {dimensions: np.asarray(table, np.int64) for dimensions, table in rows.items()})


@dataclass(frozen=True, slots=True)
class Demand:
    """What all ranks want of one tensor."""

    ranks: Integers
    pieces: Integers
    boxes: Boxes


def demands_of(requests: Sequence[Request]) -> dict[str, Demand]:
    """The requests of all ranks, tensor by tensor, in the order of the ranks."""
    names: dict[str, int] = {}
    tables: dict[int, list[Integers]] = {}
    for rank, request in enumerate(requests):
        known = np.asarray([names.setdefault(name, len(names)) for name in request.names], np.int64)
        for dimensions, table in request.tables.items():
            ranks = np.full((len(table), 1), rank, np.int64)
            tables.setdefault(dimensions, []).append(np.hstack([ranks, known[table[:, :1]], table[:, 1:]]))
    by_number = list(names)
    return {
        by_number[number]: demand
        for dimensions, parts in tables.items()
        for number, demand in split(np.vstack(parts), dimensions)
    }


def split(table: Integers, dimensions: int) -> list[tuple[int, Demand]]:
    """A table with the columns rank, name, piece, lows, highs, cut by name."""
    table = table[np.argsort(table[:, 1], kind="stable")]
    numbers, firsts = np.unique(table[:, 1], return_index=True)
    demands = []
    for number, rows in zip(numbers.tolist(), np.split(table, firsts[1:]), strict=True):
        boxes = Boxes(rows[:, 3 : 3 + dimensions], rows[:, 3 + dimensions :])
        demands.append((number, Demand(rows[:, 0], rows[:, 2], boxes)))
    return demands
