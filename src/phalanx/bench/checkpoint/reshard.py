"""What it costs to plan a load: many tensors in many shards, wanted by another number of ranks.

No two tensors have the same shape, so that no plan is shared; the second time, all of them are.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from phalanx.bench.clock import timed_us
from phalanx.bench.row import Row, Tell, ratio, row
from phalanx.train.checkpoint.store.coverage import gaps
from phalanx.train.checkpoint.store.manifest import Chunk, StoredTensor
from phalanx.train.checkpoint.store.reading.demand import Request
from phalanx.train.checkpoint.store.reading.plan import Plan, make_plan

ROWS = 100_000
PLANNING_TARGET_S = 5.0
READ_TARGET = 1.05


class Size(NamedTuple):
    """How many tensors, in how many shards, wanted by how many ranks."""

    tensors: int
    shards: int
    ranks: int

    @property
    def words(self) -> str:
        return f"{self.tensors:,} tensors in {self.shards:,} shards, for {self.ranks:,} ranks"


FULL, QUICK = Size(1024, 1024, 768), Size(16, 64, 48)


def run(size: Size, tell: Tell) -> list[Row]:
    """Planning time, at once and again, what it grows like, and how much is read."""
    tell(f"reshard: {size.words}")
    stored, requests = layout(size)
    first_us, made = timed_us(lambda: make_plan(stored, requests))
    again_us, _ = timed_us(lambda: make_plan(stored, requests))
    checked_us, found = timed_us(lambda: gaps(stored))
    assert not found
    few = Size(size.tensors, size.shards // 4, size.ranks // 4)
    tell(f"reshard: {few.words}")
    fewer = layout(few)
    fewer_us, _ = timed_us(lambda: make_plan(*fewer))
    return [
        row(f"plan {size.words}", first_us / 1e6, "s", PLANNING_TARGET_S),
        row("the same plan again", again_us / 1e6, "s"),
        row("check that the shards make up the tensors, before a commit", checked_us / 1e6, "s", PLANNING_TARGET_S),
        row(f"planning time with {size.shards:,} shards / with {few.shards:,}", ratio(first_us, fewer_us), "×", 6.0),
        row("bytes read by all ranks / bytes stored", made.bytes_read / stored_bytes(stored), "×", READ_TARGET),
        row("bytes read by the busiest rank / by the mean", busiest(made, size.ranks), "×"),
    ]


def layout(size: Size) -> tuple[dict[str, StoredTensor], list[Request]]:
    """Vectors of about ROWS elements, each a little longer than the one before."""
    lengths = [ROWS + number for number in range(size.tensors)]
    stored = {f"tensor{number}": sharded(length, size.shards) for number, length in enumerate(lengths)}
    numbers, whole = np.arange(size.tensors), np.asarray(lengths)
    requests = []
    for rank in range(size.ranks):
        low, high = whole * rank // size.ranks, whole * (rank + 1) // size.ranks
        requests.append(Request(list(stored), {1: np.stack([numbers, numbers, low, high], axis=1)}))
    return stored, requests


def sharded(length: int, shards: int) -> StoredTensor:
    cuts = [length * each // shards for each in range(shards + 1)]
    chunks = []
    for low, high in pairwise(cuts):
        chunks.append(Chunk((low,), (high - low,), "", 0, 0, 0, high - low, ()))
    return StoredTensor((length,), "float32", chunks)


def stored_bytes(stored: dict[str, StoredTensor]) -> int:
    return sum(4 * tensor.shape[0] for tensor in stored.values())


def busiest(made: Plan, ranks: int) -> float:
    read = np.bincount(made.reader, weights=made.bytes, minlength=ranks)
    return float(read.max() / read.mean())
