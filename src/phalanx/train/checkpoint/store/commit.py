"""Making a step count: when every rank has written its part, the commit mark goes in last."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from phalanx.train.checkpoint.store.coverage import gaps
from phalanx.train.checkpoint.store.dcp import metadata_bytes
from phalanx.train.checkpoint.store.digest import digest
from phalanx.train.checkpoint.store.errors import Corrupt, Incomplete, RankMissing, StoreError
from phalanx.train.checkpoint.store.fence import refuse_if_fenced
from phalanx.train.checkpoint.store.layout import DATA_NAME, INDEX_NAME, MANIFEST, MARK, METADATA, index_name, step_name
from phalanx.train.checkpoint.store.manifest import (
    Chunk,
    Index,
    Manifest,
    Mark,
    StoredFile,
    StoredObject,
    StoredTensor,
    decode,
    encode,
    seal,
)
from phalanx.train.checkpoint.store.media.medium import Medium, Root, open_medium
from phalanx.train.checkpoint.store.step import Step

POLL_S = 0.05
POLL_LONGEST_S = 1.0


def nothing(phase: str) -> None:
    """For callers that need not know how far a commit is."""


def commit(
    root: Root,
    step: int,
    ranks: Sequence[int],
    *,
    term: int = 0,
    whole: bool = True,
    timeout_s: float = 600.0,
    metrics: dict[str, float] | None = None,
    on_phase: Callable[[str], None] = nothing,
) -> Step:
    """Waits until all `ranks` have written `step`, then writes DCP's index, the manifest and the commit mark.

    One caller for all ranks; no process group. RankMissing names ranks that did not write within `timeout_s`. With
    `whole=False` (a node's own disk holds the parts of its own ranks) the pieces need not make up whole tensors.
    Finite `metrics` go into the mark, for retention. `on_phase` hears "waited", "metadata", "manifest" and "mark" when
    each is done.
    """
    medium = open_medium(root)
    directory = medium.child(step_name(step, term))
    ranks = sorted(set(ranks))
    indexes = await_indexes(directory, ranks, timeout_s)
    on_phase("waited")
    tensors, objects, files = merge(directory, indexes)
    if whole and (missing := gaps(tensors)):
        raise Incomplete(f"{directory.url}: the pieces do not make up whole tensors: {'; '.join(missing[:5])}")
    refuse_if_fenced(medium, term)
    files[METADATA] = write_file(directory, METADATA, metadata_bytes(tensors, objects, directory.url))
    on_phase("metadata")
    manifest = Manifest(step, term, ranks, indexes[0].world_size, whole, tensors, objects, files)
    written = write_file(directory, MANIFEST, encode(manifest))
    on_phase("manifest")
    refuse_if_fenced(medium, term)
    mark = mark_of(manifest, written, metrics or {})
    write_file(directory, MARK, seal(mark))
    directory.sync()
    medium.sync()
    on_phase("mark")
    clear_up(directory, ranks, files)
    return Step(directory, mark)


def write_file(directory: Medium, name: str, content: bytes) -> StoredFile:
    directory.write(name, lambda file: file.write(content))
    return StoredFile(len(content), digest(content))


def mark_of(manifest: Manifest, written: StoredFile, metrics: Mapping[str, float]) -> Mark:
    """The mark that commits a manifest."""
    size = written.bytes + sum(file.bytes for file in manifest.files.values())
    # JSON knows no NaN, and a step with such a loss is never the best.
    judged = {name: float(value) for name, value in metrics.items() if math.isfinite(value)}
    return Mark(
        manifest.step,
        manifest.term,
        manifest.world_size,
        manifest.whole,
        size,
        time.time(),
        judged,
        written.digest,
    )


def clear_up(directory: Medium, ranks: Sequence[int], files: Mapping[str, StoredFile]) -> None:
    """Takes away what the commit has made needless: indexes, and data files of the step as it was committed before."""
    for rank in ranks:
        directory.remove(index_name(rank))
    for name in directory.names():
        if DATA_NAME.fullmatch(name) and name not in files:
            directory.remove(name)


def await_indexes(directory: Medium, ranks: Sequence[int], timeout_s: float) -> list[Index]:
    if not ranks:
        raise StoreError(f"{directory.url}: expected at least one rank to commit")
    deadline = time.monotonic() + timeout_s
    wait_s = POLL_S
    while missing := sorted(set(ranks) - written_ranks(directory.names())):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise RankMissing(directory.url, missing, len(ranks), timeout_s)
        time.sleep(min(wait_s, left_s))
        wait_s = min(2 * wait_s, POLL_LONGEST_S)
    return [read_index(directory, rank) for rank in ranks]


def written_ranks(names: Iterable[str]) -> set[int]:
    return {int(match[1]) for name in names if (match := INDEX_NAME.fullmatch(name))}


def read_index(directory: Medium, rank: int) -> Index:
    try:
        index = decode(directory.read(index_name(rank)), Index)
    except ValueError as error:
        raise Corrupt(directory.url, [f"{index_name(rank)} cannot be read: {error}"]) from error
    if index.rank != rank:
        raise Corrupt(directory.url, [f"{index_name(rank)} was written by rank {index.rank}"])
    return index


def merge(
    directory: Medium, indexes: Sequence[Index]
) -> tuple[dict[str, StoredTensor], dict[str, StoredObject], dict[str, StoredFile]]:
    """All that the ranks wrote. Of a box or an object that several wrote, the lowest rank's counts."""
    boxes: dict[str, dict[tuple[tuple[int, ...], tuple[int, ...]], Chunk]] = {}
    tensors: dict[str, StoredTensor] = {}
    objects: dict[str, StoredObject] = {}
    files: dict[str, StoredFile] = {}
    for index in indexes:
        if index.world_size != indexes[0].world_size:
            raise Incomplete(
                f"{directory.url}: rank {index.rank} counts {index.world_size} ranks, "
                f"rank {indexes[0].rank} counts {indexes[0].world_size}"
            )
        files |= index.files
        objects = index.objects | objects
        for fqn, tensor in index.tensors.items():
            known = tensors.setdefault(fqn, StoredTensor(tensor.shape, tensor.dtype, []))
            if (known.shape, known.dtype) != (tensor.shape, tensor.dtype):
                raise Incomplete(
                    f"{directory.url}: {fqn} is {tensor.dtype} {list(tensor.shape)} on rank {index.rank} "
                    f"and {known.dtype} {list(known.shape)} on a rank before it"
                )
            for chunk in tensor.chunks:
                boxes.setdefault(fqn, {}).setdefault((chunk.offsets, chunk.sizes), chunk)
    for fqn, chunks in boxes.items():
        tensors[fqn].chunks.extend(chunks[box] for box in sorted(chunks))
    return tensors, objects, files
