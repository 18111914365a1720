"""Where a model and a checkpoint differ, by parameter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from phalanx.train.checkpoint.contents.piece import Piece
from phalanx.train.checkpoint.store.errors import StoreError
from phalanx.train.checkpoint.store.manifest import StoredTensor, dtype_name

SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A parameter of the model that the checkpoint does not hold in this shape and type."""

    fqn: str
    wanted: str
    stored: str

    def __str__(self) -> str:
        return f"{self.fqn}: the model has {self.wanted}, the checkpoint {self.stored}"


class ShapeMismatch(StoreError):  # noqa: N818
    """A checkpoint that does not fit the model."""

    def __init__(self, directory: str, report: Sequence[Mismatch], unused: Sequence[str]) -> None:
        self.directory = directory
        self.report = tuple(report)
        self.unused = tuple(unused)
        lines = [f"  {each}" for each in report[:SHOWN_MAX]]
        if len(report) > SHOWN_MAX:
            lines.append(f"  … and {len(report) - SHOWN_MAX} more")
        if unused:
            more = f" and {len(unused) - SHOWN_MAX} more" if len(unused) > SHOWN_MAX else ""
            lines.append(f"  only in the checkpoint: {', '.join(unused[:SHOWN_MAX])}{more}")
        super().__init__(
            f"{directory}: the checkpoint does not fit the model; nothing was loaded. Load with strict=False to take "
            "what fits:\n" + "\n".join(lines)
        )

    def __reduce__(self) -> tuple[type[ShapeMismatch], tuple[str, tuple[Mismatch, ...], tuple[str, ...]]]:
        return ShapeMismatch, (self.directory, self.report, self.unused)


def mismatches(pieces: Iterable[Piece], tensors: Mapping[str, StoredTensor]) -> list[Mismatch]:
    """A line for each parameter that does not fit, in the order of the pieces."""
    found: dict[str, Mismatch] = {}
    for piece in pieces:
        stored = tensors.get(piece.fqn)
        wanted = words(dtype_name(piece.dtype), piece.global_shape)
        if stored is None:
            found[piece.fqn] = Mismatch(piece.fqn, wanted, "has none of this name")
        elif (there := words(stored.dtype, stored.shape)) != wanted:
            found[piece.fqn] = Mismatch(piece.fqn, wanted, there)
    return list(found.values())


def words(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype} {list(shape)}"
