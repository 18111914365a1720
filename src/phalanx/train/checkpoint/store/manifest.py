"""What a step holds, where its bytes lie, and their digests."""

from __future__ import annotations

from typing import TypeVar

import msgspec
import torch

from phalanx.train.checkpoint.store.digest import digest

FORMAT = 1


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """A stored box of a tensor: one item of a data file.

    `item` and `item_bytes` say where the item lies that torch.load reads; `data` is where its raw bytes start.
    `slab_rows` rows of the box (its first dimension) at a time have a digest of their own, so that a part can be
    read and checked without the rest. A box with no dimensions is one row.
    """

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str
    item: int
    item_bytes: int
    data: int
    slab_rows: int
    digests: tuple[str, ...]


class StoredTensor(msgspec.Struct, frozen=True):
    """A whole tensor and the boxes that make it up."""

    shape: tuple[int, ...]
    dtype: str
    chunks: list[Chunk]


class StoredObject(msgspec.Struct, frozen=True):
    """A small value, as torch.save wrote it."""

    file: str
    item: int
    item_bytes: int
    digest: str


class StoredFile(msgspec.Struct, frozen=True):
    """The size and digest of a whole file."""

    bytes: int
    digest: str


class Index(msgspec.Struct, frozen=True):
    """What one rank wrote of a step."""

    step: int
    term: int
    rank: int
    world_size: int
    tensors: dict[str, StoredTensor]
    objects: dict[str, StoredObject]
    files: dict[str, StoredFile]


class Manifest(msgspec.Struct, frozen=True):
    """All that a committed step holds."""

    step: int
    term: int
    ranks: list[int]
    world_size: int
    whole: bool
    tensors: dict[str, StoredTensor]
    objects: dict[str, StoredObject]
    files: dict[str, StoredFile]
    format: int = FORMAT


class Mark(msgspec.Struct, frozen=True):
    """The commit mark. It names the one manifest that it commits."""

    step: int
    term: int
    world_size: int
    whole: bool
    bytes: int
    committed_at: float
    metrics: dict[str, float]
    manifest_digest: str
    format: int = FORMAT


class Sealed(msgspec.Struct, frozen=True):
    """A small record with its own digest: a flipped bit in it does not pass as another record."""

    record: msgspec.Raw
    digest: str


Record = TypeVar("Record")


def encode(record: msgspec.Struct) -> bytes:
    return msgspec.json.encode(record)


def decode(data: bytes | bytearray, kind: type[Record]) -> Record:
    """The record in `data`; ValueError where it is not one."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error


def seal(record: msgspec.Struct) -> bytes:
    body = encode(record)
    return encode(Sealed(msgspec.Raw(body), digest(body)))


def unseal(data: bytes | bytearray, kind: type[Record]) -> Record:
    """The sealed record in `data`; ValueError where it is not as it was written."""
    sealed = decode(data, Sealed)
    body = bytes(sealed.record)
    if digest(body) != sealed.digest:
        raise ValueError("its digest does not match")
    return decode(body, kind)


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def dtype_named(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"this torch ({torch.__version__}) knows no dtype {name!r}")
    return dtype
