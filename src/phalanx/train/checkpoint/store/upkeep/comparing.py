"""Where two checkpoints differ, tensor by tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch

from phalanx.train.checkpoint.contents.piece import Piece
from phalanx.train.checkpoint.store.item import raw_bytes
from phalanx.train.checkpoint.store.manifest import StoredTensor, dtype_named
from phalanx.train.checkpoint.store.mismatch import words
from phalanx.train.checkpoint.store.reading.load import fill_from
from phalanx.train.checkpoint.store.reading.read import read_object
from phalanx.train.checkpoint.store.reading.source import Source

Kind: TypeAlias = Literal["only in first", "only in second", "shape", "values", "object"]


@dataclass(frozen=True, slots=True)
class Difference:
    """A name under which two checkpoints hold different things."""

    name: str
    kind: Kind
    first: str | None
    second: str | None
    elements: int | None = None
    largest: float | None = None


def differences(first: Source, second: Source) -> Iterator[Difference]:
    """All differences, by name. Tensors are compared bit by bit, two at a time in memory."""
    ours, theirs = first.manifest.tensors, second.manifest.tensors
    for name in sorted({*ours, *theirs}):
        one, two = ours.get(name), theirs.get(name)
        if one is None or two is None:
            yield alone(name, describe(one), describe(two))
        elif describe(one) != describe(two):
            yield Difference(name, "shape", describe(one), describe(two))
        elif not same_digests(one, two) and (found := in_values(name, one, first, second)):
            yield found
    yield from in_objects(first, second)


def in_values(name: str, stored: StoredTensor, first: Source, second: Source) -> Difference | None:
    one, two = (read_whole(source, name, stored) for source in (first, second))
    width = stored_width(stored)
    bits = [torch.frombuffer(raw_bytes(each), dtype=torch.uint8).view(-1, width) for each in (one, two) if each.numel()]
    if not bits:
        return None
    differing = int((bits[0] != bits[1]).any(dim=1).sum())
    if not differing:
        return None
    return Difference(name, "values", describe(stored), describe(stored), differing, largest_gap(one, two))


def in_objects(first: Source, second: Source) -> Iterator[Difference]:
    ours, theirs = first.manifest.objects, second.manifest.objects
    for key in sorted({*ours, *theirs}):
        one, two = ours.get(key), theirs.get(key)
        if one is None or two is None:
            yield alone(key, "object" if one else None, "object" if two else None)
        elif bytes(read_object(first, key, one)) != bytes(read_object(second, key, two)):
            yield Difference(key, "object", "object", "object")


def alone(name: str, first: str | None, second: str | None) -> Difference:
    return Difference(name, "only in first" if second is None else "only in second", first, second)


def describe(tensor: StoredTensor | None) -> str | None:
    return words(tensor.dtype, tensor.shape) if tensor else None


def same_digests(one: StoredTensor, two: StoredTensor) -> bool:
    """Whether digests alone say that two tensors are equal: the same boxes with the same bytes."""

    def key(tensor: StoredTensor) -> list[tuple[object, ...]]:
        return [(each.offsets, each.sizes, each.slab_rows, each.digests) for each in tensor.chunks]

    return bool(one.chunks) and all(each.digests for each in one.chunks) and key(one) == key(two)


def read_whole(source: Source, name: str, stored: StoredTensor) -> torch.Tensor:
    tensor = torch.zeros(stored.shape, dtype=dtype_named(stored.dtype))
    fill_from(source, [Piece.whole(name, tensor)])
    return tensor


def stored_width(stored: StoredTensor) -> int:
    return dtype_named(stored.dtype).itemsize


def largest_gap(one: torch.Tensor, two: torch.Tensor) -> float | None:
    """The largest absolute difference; None where there is none: of NaN, of infinity, of what are not numbers."""
    if one.dtype.is_complex or one.dtype is torch.bool:
        return None
    gap = float((one.double() - two.double()).abs().max())
    return gap if math.isfinite(gap) else None
