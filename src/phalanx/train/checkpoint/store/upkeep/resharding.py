"""A step written anew for another number of ranks."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from phalanx.train.checkpoint.contents.piece import Piece
from phalanx.train.checkpoint.store.commit import commit
from phalanx.train.checkpoint.store.errors import StoreError
from phalanx.train.checkpoint.store.layout import MARK, step_name
from phalanx.train.checkpoint.store.manifest import Manifest, dtype_named
from phalanx.train.checkpoint.store.media.medium import Root, open_medium
from phalanx.train.checkpoint.store.reading.load import fill_from
from phalanx.train.checkpoint.store.reading.source import Source
from phalanx.train.checkpoint.store.step import Step
from phalanx.train.checkpoint.store.upkeep.copying import StepExists, refuse_if_busy
from phalanx.train.checkpoint.store.write import write_step


def reshard(source: Source, root: Root, ranks: int, *, step: int | None = None, trusted: bool = False) -> Step:
    """Writes a checkpoint, ours or DCP's, into the collection at `root` as `ranks` ranks would have, cut by rows.

    One rank's share is in memory at a time. `step` is its number there, by default the one it has.
    """
    if ranks < 1:
        raise StoreError(f"expected at least 1 rank, got {ranks}")
    number = step if step is not None else source.step.step if source.step else None
    if number is None:
        raise StoreError(f"{source.directory.url}: a checkpoint of DCP has no step number; say which it shall have")
    destination = open_medium(root)
    refuse_if_busy(destination)
    directory = destination.child(step_name(number, 0))
    if directory.size(MARK) is not None:
        raise StepExists(f"{directory.url}: step {number} is already there; remove it first")
    for rank in range(ranks):
        pieces = list(share(source.manifest, rank, ranks))
        keys = list(source.manifest.objects) if rank == 0 else []
        objects = fill_from(source, pieces, keys, trusted)
        write_step(destination, number, rank, ranks, pieces, objects)
    metrics = source.step.metrics if source.step else {}
    return commit(destination, number, range(ranks), metrics=metrics)


def share(manifest: Manifest, rank: int, ranks: int) -> Iterator[Piece]:
    """A rank's rows of every tensor, still empty; what has no rows belongs to one of the ranks."""
    for number, (fqn, tensor) in enumerate(manifest.tensors.items()):
        dtype, shape = dtype_named(tensor.dtype), tensor.shape
        if not shape:
            yield Piece.whole(fqn, torch.zeros((), dtype=dtype), (rank - number) % ranks, ranks)
            continue
        low, high = (shape[0] * each // ranks for each in (rank, rank + 1))
        sizes = (high - low, *shape[1:])
        offsets = (low, *(0 for _ in shape[1:]))
        yield Piece(fqn, shape, offsets, sizes, dtype, torch.zeros(sizes, dtype=dtype))
