"""Which rank reads which slab, and which gets which part of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from phalanx.train.checkpoint.store.boxes import Boxes, Integers, meetings, spread
from phalanx.train.checkpoint.store.manifest import Chunk, StoredTensor, dtype_named
from phalanx.train.checkpoint.store.reading.demand import Demand, Request, demands_of

# How much all ranks together read before they pass it on.
ROUND_BYTES = 512 << 20
ROUND_BYTES_LEAST = 16 << 20


@dataclass(frozen=True, slots=True)
class Slabs:
    """The slabs of one stored tensor: their boxes, the chunk each is of, and where it begins in the chunk's bytes."""

    boxes: Boxes
    chunks: Integers
    starts: Integers


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a slab that a piece of `rank` wants, as a box of the tensor."""

    rank: int
    piece: int
    low: tuple[int, ...]
    high: tuple[int, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class Reading:
    """A slab to be read by `reader`, and the parts that are wanted of it."""

    reader: int
    fqn: str
    chunk: Chunk
    slab: int
    start: int
    low: tuple[int, ...]
    high: tuple[int, ...]
    bytes: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """All slabs to be read, each by one rank, in rounds; and the parts of them, in the order of the slabs.

    Columns of one length: a row for each slab in `tensor` … `bytes`, a row for each part in `part_…`. `first_part[i]`
    is where the parts of slab i begin.
    """

    names: list[str]
    stored: list[StoredTensor]
    slabs: list[Slabs]
    demands: list[Demand]
    tensor: Integers
    slab: Integers
    reader: Integers
    round: Integers
    bytes: Integers
    first_part: Integers
    part_rank: Integers
    part_demand: Integers
    part_bytes: Integers

    @property
    def rounds(self) -> int:
        return int(self.round.max()) + 1 if len(self.round) else 0

    @property
    def bytes_read(self) -> int:
        return int(self.bytes.sum())

    def readings(self, rank: int) -> Iterator[list[Reading]]:
        """What concerns `rank`, round by round: the slabs it reads, and those of which other ranks send it a part."""
        of_part = np.searchsorted(self.first_part, np.flatnonzero(self.part_rank == rank), "right") - 1
        rows = np.union1d(np.flatnonzero(self.reader == rank), of_part)
        rows = rows[np.argsort(self.round[rows], kind="stable")]
        ends = np.searchsorted(self.round[rows], np.arange(self.rounds), "right")
        for of_round in np.split(rows, ends[:-1]):
            yield [self._reading(row) for row in of_round.tolist()]

    def shortfalls(self) -> list[str]:
        """A line for each tensor of which something is wanted that no slab holds, or that two slabs hold."""
        tensor = np.repeat(self.tensor, np.diff(self.first_part))
        found = []
        for number, (name, demand) in enumerate(zip(self.names, self.demands, strict=True)):
            low, high = np.searchsorted(tensor, [number, number + 1])
            there = np.bincount(self.part_demand[low:high], self.part_bytes[low:high], minlength=len(demand.boxes))
            wanted = demand.boxes.volumes * dtype_named(self.stored[number].dtype).itemsize
            wrong = np.flatnonzero(there != wanted)
            if len(wrong):
                row = int(wrong[0])
                found.append(
                    f"{name}: rank {demand.ranks[row]} wants {wanted[row]} bytes at {demand.boxes.lows[row].tolist()}, "
                    f"found {int(there[row])}"
                )
        return found

    def _reading(self, row: int) -> Reading:
        low, high = int(self.first_part[row]), int(self.first_part[row + 1])
        number = int(self.tensor[row])
        slabs, slab = self.slabs[number], int(self.slab[row])
        chunk = self.stored[number].chunks[int(slabs.chunks[slab])]
        first = int(np.searchsorted(slabs.chunks, slabs.chunks[slab]))
        parts = tuple(self._part(number, slab, part) for part in range(low, high))
        return Reading(
            int(self.reader[row]),
            self.names[number],
            chunk,
            slab - first,
            int(slabs.starts[slab]),
            tuple(slabs.boxes.lows[slab].tolist()),
            tuple(slabs.boxes.highs[slab].tolist()),
            int(self.bytes[row]),
            parts,
        )

    def _part(self, number: int, slab: int, part: int) -> Part:
        boxes, demand, row = self.slabs[number].boxes, self.demands[number], int(self.part_demand[part])
        low = np.maximum(boxes.lows[slab], demand.boxes.lows[row])
        high = np.minimum(boxes.highs[slab], demand.boxes.highs[row])
        return Part(
            int(self.part_rank[part]),
            int(demand.pieces[row]),
            tuple(low.tolist()),
            tuple(high.tolist()),
            int(self.part_bytes[part]),
        )


def make_plan(tensors: Mapping[str, StoredTensor], requests: Sequence[Request]) -> Plan:
    """The plan of all ranks. Every rank makes the same one from the same requests.

    The cost grows with the number of slabs and of parts, not with their product. A slab that several ranks want is
    read by the one of them that has the least to read.
    """
    demands = demands_of(requests)
    names = sorted(demands)
    slabs = [slabs_of(tensors[name]) for name in names]
    columns = [rows_of(number, tensors[name], slabs[number], demands[name]) for number, name in enumerate(names)]
    tensor, slab, size, counts, ranks, rows, sizes = (
        np.concatenate(column) if columns else np.empty(0, np.int64)
        for column in (zip(*columns, strict=True) if columns else [()] * 7)
    )
    first_part = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    reader = readers_of(first_part, ranks, size, len(requests))
    return Plan(
        names,
        [tensors[name] for name in names],
        slabs,
        [demands[name] for name in names],
        tensor,
        slab,
        reader,
        rounds_of(reader, size, len(requests)),
        size,
        first_part,
        ranks,
        rows,
        sizes,
    )


def slabs_of(tensor: StoredTensor) -> Slabs:
    """A tensor's slabs, chunk by chunk."""
    boxes = Boxes.of([each.offsets for each in tensor.chunks], [each.sizes for each in tensor.chunks])
    rows = np.asarray([each.slab_rows for each in tensor.chunks], np.int64)
    height = boxes.highs[:, 0] - boxes.lows[:, 0]
    chunks, number = spread(-(-height // np.maximum(rows, 1)))
    lows, highs = boxes.lows[chunks], boxes.highs[chunks]
    first_row = number * rows[chunks]
    lows[:, 0] += first_row
    highs[:, 0] = np.minimum(lows[:, 0] + rows[chunks], highs[:, 0])
    width = np.prod(highs[:, 1:] - lows[:, 1:], axis=1, dtype=np.int64) * dtype_named(tensor.dtype).itemsize
    return Slabs(Boxes(lows, highs), chunks, first_row * width)


def rows_of(number: int, tensor: StoredTensor, slabs: Slabs, demand: Demand) -> tuple[Integers, ...]:
    """The plan's columns for one tensor."""
    found, asking = meetings(slabs.boxes, demand.boxes)
    order = np.lexsort((asking, found))
    found, asking = found[order], asking[order]
    needed, counts = np.unique(found, return_counts=True)
    itemsize = dtype_named(tensor.dtype).itemsize
    low = np.maximum(slabs.boxes.lows[found], demand.boxes.lows[asking])
    high = np.minimum(slabs.boxes.highs[found], demand.boxes.highs[asking])
    sizes = np.prod(high - low, axis=1, dtype=np.int64) * itemsize
    return (
        np.full(len(needed), number, np.int64),
        needed,
        slabs.boxes.volumes[needed] * itemsize,
        counts.astype(np.int64),
        demand.ranks[asking],
        asking,
        sizes,
    )


def readers_of(first_part: Integers, ranks: Integers, size: Integers, world_size: int) -> Integers:
    """The reader of each slab: the only rank that wants it; of several, largest slab first, the least loaded."""
    reader = ranks[first_part[:-1]]
    shared = np.flatnonzero(np.diff(first_part) > 1)
    alone = np.ones(len(reader), bool)
    alone[shared] = False
    load = np.bincount(reader[alone], weights=size[alone], minlength=world_size).tolist()
    wanting, largest_first = ranks.tolist(), shared[np.argsort(-size[shared], kind="stable")]
    bounds = zip(first_part[largest_first].tolist(), first_part[largest_first + 1].tolist(), strict=True)
    chosen = []
    for (low, high), more in zip(bounds, size[largest_first].tolist(), strict=True):
        least = min(wanting[low:high], key=load.__getitem__)
        load[least] += more
        chosen.append(least)
    reader[largest_first] = chosen
    return reader


def rounds_of(reader: Integers, size: Integers, world_size: int) -> Integers:
    """The round in which each slab is read: no rank reads more in a round than its share of ROUND_BYTES."""
    limit = max(ROUND_BYTES_LEAST, ROUND_BYTES // world_size)
    order = np.argsort(reader, kind="stable")
    total = np.cumsum(size[order])
    first = np.searchsorted(reader[order], np.arange(world_size))
    before = np.concatenate([[0], total])[first]
    rounds = np.empty(len(reader), np.int64)
    rounds[order] = (total - before[reader[order]]) // limit
    return rounds
