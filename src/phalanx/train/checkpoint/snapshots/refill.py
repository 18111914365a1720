"""A snapshot in host memory back onto the device, in the memory's first use by a new trainer.

The memory is not pinned for this trainer yet, and pinning it takes longer than the copy: each page is visited, by one
thread. Instead several threads copy chunks to small pinned buffers, from which the bus takes them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence

import torch

from phalanx.train.checkpoint.contents.piece import Piece
from phalanx.train.checkpoint.host.slot import Slot
from phalanx.train.checkpoint.snapshots.arrangement import Entry

CHUNK_BYTES = 8 << 20
THREADS = max(1, min(12, (os.cpu_count() or 1) - 2))
BUFFERS_EACH = 2

Chunk = tuple[torch.Tensor, torch.Tensor]
"""Bytes in host memory, and where on the device they go."""


def refill(device: torch.device, pieces: Sequence[Piece], entries: Sequence[Entry], slot: Slot) -> None:
    """Fills the pieces; waits until all is there."""
    chunks = _chunks(pieces, entries, slot)
    lock = threading.Lock()
    faults: list[BaseException] = []

    def take() -> Chunk | None:
        with lock:
            return next(chunks, None)

    def work() -> None:
        try:
            # A thread begins on the first device, where nothing of this rank's should be.
            with torch.cuda.device(device):
                _carry(device, take)
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, name="refill") for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]


def _carry(device: torch.device, take: Callable[[], Chunk | None]) -> None:
    """Takes chunks until there are none, each by way of a buffer whose last content has left."""
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    buffers = [torch.empty(CHUNK_BYTES, dtype=torch.uint8, pin_memory=True) for _ in range(BUFFERS_EACH)]
    left = [torch.cuda.Event(blocking=True) for _ in buffers]  # type: ignore[no-untyped-call]
    turn = 0
    with torch.cuda.stream(stream):
        while (chunk := take()) is not None:
            source, goal = chunk
            left[turn].synchronize()
            buffer = buffers[turn][: source.numel()]
            buffer.copy_(source)
            goal.copy_(buffer, non_blocking=True)
            left[turn].record(stream)
            turn = (turn + 1) % BUFFERS_EACH
    stream.synchronize()


def _chunks(pieces: Sequence[Piece], entries: Sequence[Entry], slot: Slot) -> Iterator[Chunk]:
    for piece, entry in zip(pieces, entries, strict=True):
        if not (piece.tensor.is_cuda and piece.tensor.is_contiguous()):
            piece.tensor.copy_(slot.tensor(entry))
            continue
        goal = piece.tensor.detach().view(-1).view(torch.uint8)
        for start in range(0, entry.nbytes, CHUNK_BYTES):
            stop = min(start + CHUNK_BYTES, entry.nbytes)
            yield slot.segment.bytes[entry.position + start : entry.position + stop], goal[start:stop]
