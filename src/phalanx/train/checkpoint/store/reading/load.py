"""Bringing a step back into tensors, on as many ranks and in whatever layout they now have."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from phalanx.train.checkpoint.contents.piece import Piece
from phalanx.train.checkpoint.store.errors import Corrupt, StoreError
from phalanx.train.checkpoint.store.item import raw_bytes
from phalanx.train.checkpoint.store.media.medium import Root, open_medium
from phalanx.train.checkpoint.store.mismatch import Mismatch, ShapeMismatch, mismatches
from phalanx.train.checkpoint.store.reading.demand import Request
from phalanx.train.checkpoint.store.reading.loading_ranks import LoadingRanks, Solo, all_or_none, crew_of, told_by_first
from phalanx.train.checkpoint.store.reading.plan import Part, Plan, Reading, make_plan
from phalanx.train.checkpoint.store.reading.read import read_object, read_slab, unpack_object
from phalanx.train.checkpoint.store.reading.source import Source, no_source, sources
from phalanx.train.checkpoint.store.step import Step
from phalanx.train.checkpoint.store.upkeep.verify import Broken

READERS = 8


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a load has done on this rank. `step` is None for a directory that DCP wrote."""

    step: Step | None
    objects: dict[str, Any]
    bytes_read: int
    bytes_received: int
    seconds: float
    passed_over: tuple[Broken, ...]
    mismatches: tuple[Mismatch, ...]
    unused: tuple[str, ...]


@dataclass(slots=True)
class Counts:
    """Bytes so far."""

    read: int = 0
    received: int = 0


@dataclass(frozen=True, slots=True)
class Loading:
    """One load under way: which ranks take part, and what this rank wants."""

    ranks_loading: LoadingRanks
    pieces: Sequence[Piece]
    objects: Collection[str] | None
    strict: bool
    trusted: bool
    counts: Counts = field(default_factory=Counts)


def load_into(
    root: Root,
    step: int | Step | None,
    pieces: Sequence[Piece],
    *,
    objects: Collection[str] | None = None,
    group: dist.ProcessGroup | None = None,
    strict: bool = True,
    trusted: bool = False,
) -> Loaded:
    """Fills the tensors of `pieces` from `step`, or from the newest step that is intact.

    The pieces need not be those that were saved: any boxes of the same tensors will do. With a `group`, all its ranks
    call this together; each byte that several want is read by one of them and passed on. Every byte is checked before
    it is used. Without a `step`, a step found damaged is passed over and the next older one loaded, and
    `Loaded.passed_over` names it. When an error is raised after loading began, the tensors may hold parts of a damaged
    step: do not train on them.

    `objects` are the keys to bring back, None for all. A parameter that is missing or of another shape or type raises
    ShapeMismatch before anything is changed; with `strict=False` it is left as it is and reported. `trusted` lets
    objects be of any class.
    """
    began = time.monotonic()
    loading = Loading(crew_of(group), pieces, objects, strict, trusted)
    passed_over: list[Broken] = []
    for source in shared_sources(loading.ranks_loading, root, step, passed_over):
        try:
            found, differing, unused = load_source(loading, source)
        except Corrupt as error:
            if step is not None or source.step is None:
                raise
            passed_over.append(Broken(source.step.step, source.step.term, source.directory.url, error.reasons))
            continue
        took = time.monotonic() - began
        counts = loading.counts
        over = tuple(dict.fromkeys(passed_over))
        return Loaded(source.step, found, counts.read, counts.received, took, over, tuple(differing), tuple(unused))
    raise no_source(open_medium(root), passed_over)


def fill_from(
    source: Source, pieces: Sequence[Piece], objects: Collection[str] = (), trusted: bool = False
) -> dict[str, Any]:
    """Fills pieces from a source that has been chosen already, on this rank alone; gives the objects asked for."""
    found, _, _ = load_source(Loading(Solo(), pieces, objects, True, trusted), source)
    return found


def shared_sources(
    ranks_loading: LoadingRanks, root: Root, step: int | Step | None, passed_over: list[Broken]
) -> Iterator[Source]:
    """The sources, looked for by the first rank and told to all."""
    mine: list[Broken] = []
    candidates = sources(root, step, mine)
    while True:
        source, broken = told_by_first(ranks_loading, lambda: (next(candidates, None), list(mine)))
        passed_over.extend(each for each in broken if each not in passed_over)
        if source is None:
            return
        yield source


def load_source(loading: Loading, source: Source) -> tuple[dict[str, Any], list[Mismatch], list[str]]:
    tensors = source.manifest.tensors
    mine = mismatches(loading.pieces, tensors)
    request = Request.of(loading.pieces, without={each.fqn for each in mine})
    answers = loading.ranks_loading.gather((request, mine, [piece.fqn for piece in loading.pieces]))
    wanted = {fqn for _, _, names in answers for fqn in names}
    unused = [fqn for fqn in tensors if fqn not in wanted]
    report = list({each.fqn: each for _, theirs, _ in answers for each in theirs}.values())
    if report and loading.strict:
        raise ShapeMismatch(source.directory.url, report, unused)
    plan = all_or_none(loading.ranks_loading, lambda: checked_plan(source, [each for each, _, _ in answers]))
    for readings in plan.readings(loading.ranks_loading.rank):
        take_round(loading, source, readings)
    return load_objects(loading, source), report, unused


def checked_plan(source: Source, requests: Sequence[Request]) -> Plan:
    """The plan, after making sure that all that is wanted is there: a node's own disk holds only parts."""
    plan = make_plan(source.manifest.tensors, requests)
    if missing := plan.shortfalls():
        raise Corrupt(source.directory.url, missing)
    return plan


def take_round(loading: Loading, source: Source, readings: Sequence[Reading]) -> None:
    """Reads this rank's slabs of a round, hands their parts to the ranks that want them, and takes its own."""
    ranks_loading = loading.ranks_loading
    mine = [each for each in readings if each.reader == ranks_loading.rank]
    slabs = all_or_none(ranks_loading, lambda: read_all(source, mine))
    loading.counts.read += sum(each.chunk.item_bytes if not source.is_checked else each.bytes for each in mine)
    outgoing = [bytearray() for _ in range(ranks_loading.size)]
    for reading, slab in zip(mine, slabs, strict=True):
        for part in reading.parts:
            cut = slab[slices(part, reading.low)]
            if part.rank == ranks_loading.rank:
                fill(loading.pieces[part.piece], part, cut)
            else:
                outgoing[part.rank] += raw_bytes(cut)
    if ranks_loading.size > 1:
        receive(loading, readings, outgoing)


def receive(loading: Loading, readings: Sequence[Reading], outgoing: list[bytearray]) -> None:
    ranks_loading = loading.ranks_loading
    expected: list[list[Part]] = [[] for _ in range(ranks_loading.size)]
    for reading in readings:
        if reading.reader != ranks_loading.rank:
            expected[reading.reader].extend(part for part in reading.parts if part.rank == ranks_loading.rank)
    incoming = ranks_loading.exchange(outgoing, [sum(part.bytes for part in parts) for parts in expected])
    for parts, content in zip(expected, incoming, strict=True):
        at = 0
        for part in parts:
            piece = loading.pieces[part.piece]
            # A copy of their own lies where their type wants to lie, which bytes in a row need not.
            flat = torch.frombuffer(content[at : at + part.bytes], dtype=torch.uint8).clone().view(piece.dtype)
            extents = [high - low for low, high in zip(part.low, part.high, strict=True)]
            fill(piece, part, flat.reshape(extents))
            at += part.bytes
            loading.counts.received += part.bytes


def read_all(source: Source, readings: Sequence[Reading]) -> list[torch.Tensor]:
    if not readings:
        return []
    with ThreadPoolExecutor(min(READERS, len(readings)), "checkpoint-read") as pool:
        return list(pool.map(lambda each: read_slab(source, each), readings))


def fill(piece: Piece, part: Part, content: torch.Tensor) -> None:
    target = piece.tensor.detach()
    if not piece.sizes:
        target.copy_(content.reshape(()))
        return
    target[slices(part, piece.offsets)].copy_(content)


def slices(part: Part, origin: Sequence[int]) -> tuple[slice, ...]:
    """A part of a box that begins at `origin`."""
    return tuple(slice(low - first, high - first) for low, high, first in zip(part.low, part.high, origin, strict=True))


def load_objects(loading: Loading, source: Source) -> dict[str, Any]:
    """The objects this rank asked for. Each is read by one rank."""
    ranks_loading, stored = loading.ranks_loading, source.manifest.objects
    wanted = list(stored) if loading.objects is None else sorted(set(loading.objects))
    known = [key for keys in ranks_loading.gather(wanted) for key in keys if key in stored]
    mine = list(dict.fromkeys(known))[ranks_loading.rank :: ranks_loading.size]
    read = all_or_none(ranks_loading, lambda: {key: read_object(source, key, stored[key]) for key in mine})
    loading.counts.read += sum(map(len, read.values()))
    contents = {key: content for each in ranks_loading.gather(read) for key, content in each.items()}
    loading.counts.received += sum(len(contents[key]) for key in wanted if key in contents and key not in read)
    absent = [key for key in wanted if key not in contents]
    if absent and loading.strict:
        raise StoreError(f"{source.directory.url}: there is no object {absent[0]!r}; there are: {', '.join(stored)}")
    return {key: unpack_object(key, contents[key], loading.trusted) for key in wanted if key in contents}
