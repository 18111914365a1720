"""A checkpoint of DeepSpeed written as a step of ours."""

from __future__ import annotations

from pathlib import Path

from phalanx.train.checkpoint.contents.piece import Piece
from phalanx.train.checkpoint.store.commit import commit
from phalanx.train.checkpoint.store.layout import MARK, step_name
from phalanx.train.checkpoint.store.media.medium import Root, open_medium
from phalanx.train.checkpoint.store.reading.deepspeed import DeepSpeedCheckpoint, read_deepspeed
from phalanx.train.checkpoint.store.step import Step
from phalanx.train.checkpoint.store.upkeep.copying import StepExists, refuse_if_busy
from phalanx.train.checkpoint.store.write import write_step


def convert_deepspeed(folder: Path, root: Root, ranks: int, *, step: int | None = None) -> Step:
    """Writes DeepSpeed's checkpoint in `folder` into the collection at `root`, as `ranks` ranks would have.

    `step` is its number there, by default that of DeepSpeed's last step. All of it is in memory at a time.
    """
    checkpoint = read_deepspeed(folder)
    number = checkpoint.step if step is None else step
    destination = open_medium(root)
    refuse_if_busy(destination)
    directory = destination.child(step_name(number, 0))
    if directory.size(MARK) is not None:
        raise StepExists(f"{directory.url}: step {number} is already there; remove it first")
    for rank in range(ranks):
        objects = checkpoint.objects if rank == 0 else {}
        write_step(destination, number, rank, ranks, share(checkpoint, rank, ranks), objects)
    return commit(destination, number, range(ranks))


def share(checkpoint: DeepSpeedCheckpoint, rank: int, ranks: int) -> list[Piece]:
    """A rank's rows of every tensor; what has no rows belongs to one of the ranks."""
    pieces = []
    for number, (fqn, tensor) in enumerate(checkpoint.tensors.items()):
        shape = tuple(tensor.shape)
        if not shape:
            pieces.append(Piece.whole(fqn, tensor, (rank - number) % ranks, ranks))
            continue
        low, high = (shape[0] * each // ranks for each in (rank, rank + 1))
        offsets, sizes = (low, *(0 for _ in shape[1:])), (high - low, *shape[1:])
        pieces.append(Piece(fqn, shape, offsets, sizes, tensor.dtype, tensor[low:high]))
    return pieces
