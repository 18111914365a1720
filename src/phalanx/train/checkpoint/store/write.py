"""One rank's part of a step, written from host memory. Needs no process group."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, BinaryIO

from phalanx.train.checkpoint.contents.piece import Piece
from phalanx.train.checkpoint.store.digest import digest
from phalanx.train.checkpoint.store.errors import StoreError
from phalanx.train.checkpoint.store.fence import refuse_if_fenced
from phalanx.train.checkpoint.store.item import Tally, raw_bytes, write_object, write_tensor
from phalanx.train.checkpoint.store.layout import DATA_NAME, MARK, data_name, index_name, step_name
from phalanx.train.checkpoint.store.manifest import (
    Chunk,
    Index,
    StoredFile,
    StoredObject,
    StoredTensor,
    dtype_name,
    encode,
)
from phalanx.train.checkpoint.store.media.medium import Medium, Root, open_medium
from phalanx.train.checkpoint.store.reading.slab import row_bytes, slab_digests, slab_rows


@dataclass(frozen=True, slots=True)
class Written:
    """What a rank has put into the store."""

    bytes: int
    files: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file as it was written."""

    name: str
    file: StoredFile
    chunks: tuple[tuple[str, Chunk], ...]
    objects: dict[str, StoredObject]


def write_step(
    root: Root,
    step: int,
    rank: int,
    world_size: int,
    pieces: Sequence[Piece],
    objects: Mapping[str, Any],
    *,
    term: int = 0,
    threads: int = 1,
) -> Written:
    """Writes what `rank` holds of `step`, durably, and an index of it; `commit` makes the step count.

    Of a replicated piece only the copy is written that `Piece.is_written` names. Several `threads` write several files.
    Writing again replaces what this rank wrote of this step in this term; a step that is committed stays whole until
    the next `commit` of it. `term` comes from `claim`; without one, a trainer that starts again must not meet its own
    unfinished steps.
    """
    began = time.monotonic()
    check_arguments(step, rank, world_size, pieces)
    medium = open_medium(root)
    refuse_if_fenced(medium, term)
    directory = medium.child(step_name(step, term))
    shares = balanced([piece for piece in pieces if piece.is_written], threads)
    first = first_free(directory, rank)
    with ThreadPoolExecutor(len(shares), "checkpoint-write") as pool:
        jobs = [
            pool.submit(write_data, directory, data_name(rank, first + number), share, objects if number == 0 else {})
            for number, share in enumerate(shares)
        ]
        files = [job.result() for job in jobs]
    index = index_of(step, term, rank, world_size, pieces, files)
    directory.write(index_name(rank), lambda file: file.write(encode(index)))
    written = sum(each.file.bytes for each in files)
    return Written(written, tuple(each.name for each in files), time.monotonic() - began)


def check_arguments(step: int, rank: int, world_size: int, pieces: Sequence[Piece]) -> None:
    if step < 0:
        raise StoreError(f"step {step}: expected 0 or more")
    if not 0 <= rank < world_size:
        raise StoreError(f"rank {rank} of {world_size}: expected a rank from 0 to {world_size - 1}")
    for piece in pieces:
        if piece.is_written and piece.tensor.device.type != "cpu":
            raise StoreError(f"{piece.fqn}: expected a tensor in host memory, found it on {piece.tensor.device}")


def first_free(directory: Medium, rank: int) -> int:
    """The number of this rank's first data file: beside those of a committed step, over those of an unfinished one."""
    if directory.size(MARK) is None:
        return 0
    taken = [match for name in directory.names() if (match := DATA_NAME.fullmatch(name))]
    return 1 + max((int(match[2]) for match in taken if int(match[1]) == rank), default=-1)


def balanced(pieces: Sequence[Piece], count: int) -> list[list[Piece]]:
    """The pieces in at most `count` shares of about the same size; at least one share, though it be empty."""
    shares: list[list[Piece]] = [[] for _ in range(max(1, min(count, len(pieces))))]
    loads = [0] * len(shares)
    for piece in sorted(pieces, key=lambda each: -each.nbytes):
        least = loads.index(min(loads))
        shares[least].append(piece)
        loads[least] += piece.nbytes
    return shares


def write_data(directory: Medium, name: str, pieces: Sequence[Piece], objects: Mapping[str, Any]) -> DataFile:
    def produce(file: BinaryIO) -> DataFile:
        tally = Tally(file)
        chunks = tuple((piece.fqn, append_piece(tally, name, piece)) for piece in pieces)
        stored = {key: append_object(tally, name, key, value) for key, value in objects.items()}
        return DataFile(name, StoredFile(tally.position, tally.digest.hexdigest()), chunks, stored)

    return directory.write(name, produce)


def append_piece(tally: Tally, name: str, piece: Piece) -> Chunk:
    item = write_tensor(tally, piece.tensor)
    itemsize = piece.dtype.itemsize
    rows = slab_rows(piece.sizes, itemsize)
    digests = slab_digests(raw_bytes(piece.tensor), rows * row_bytes(piece.sizes, itemsize))
    return Chunk(piece.offsets, piece.sizes, name, item.start, item.length, item.data, rows, digests)


def append_object(tally: Tally, name: str, key: str, value: Any) -> StoredObject:
    try:
        item, content = write_object(tally, value)
    except Exception as error:
        if error is tally.failure:
            # Not the object is to blame, and the store may take it the next time.
            raise
        raise StoreError(f"object {key!r} of type {type(value).__name__} cannot be saved: {error}") from error
    return StoredObject(name, item.start, item.length, digest(content))


def index_of(
    step: int, term: int, rank: int, world_size: int, pieces: Sequence[Piece], files: Sequence[DataFile]
) -> Index:
    """What was written, and the names and shapes also of what another rank writes."""
    tensors: dict[str, StoredTensor] = {}
    for piece in pieces:
        tensor = StoredTensor(piece.global_shape, dtype_name(piece.dtype), [])
        known = tensors.setdefault(piece.fqn, tensor)
        if (known.shape, known.dtype) != (tensor.shape, tensor.dtype):
            raise StoreError(
                f"{piece.fqn}: two pieces disagree, {known.dtype} {list(known.shape)} "
                f"and {tensor.dtype} {list(tensor.shape)}"
            )
    for file in files:
        for fqn, chunk in file.chunks:
            tensors[fqn].chunks.append(chunk)
    objects = {key: value for file in files for key, value in file.objects.items()}
    return Index(step, term, rank, world_size, tensors, objects, {each.name: each.file for each in files})
