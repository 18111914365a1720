"""Who reads what: every part wanted is read by exactly one rank, found as brute force finds it."""

from __future__ import annotations

import math
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layouts import LAYOUTS, model, pieces_of

from phalanx.train.checkpoint.contents.piece import Piece
from phalanx.train.checkpoint.store import boxes
from phalanx.train.checkpoint.store.boxes import Boxes, meetings
from phalanx.train.checkpoint.store.coverage import gaps
from phalanx.train.checkpoint.store.manifest import Chunk, StoredTensor
from phalanx.train.checkpoint.store.reading import plan
from phalanx.train.checkpoint.store.reading.demand import Request
from phalanx.train.checkpoint.store.reading.plan import make_plan
from phalanx.train.checkpoint.store.reading.slab import slab_rows

pytestmark = pytest.mark.needs("torch")

Spans = list[tuple[tuple[int, ...], tuple[int, ...]]]


def cuts(size: int) -> st.SearchStrategy[list[int]]:
    """Places to cut a length, ends included; two equal ones make an empty part."""
    return st.lists(st.integers(0, size), max_size=4).map(lambda inner: [0, *sorted(inner), size])


@st.composite
def grids(draw: st.DrawFn, shape: tuple[int, ...]) -> Spans:
    lines = [draw(cuts(size)) for size in shape]
    spans = [list(pairwise(each)) for each in lines]
    return [(tuple(low for low, _ in cell), tuple(high - low for low, high in cell)) for cell in product(*spans)]


@st.composite
def split_trees(draw: st.DrawFn, shape: tuple[int, ...]) -> Spans:
    """A box cut in two again and again, so that the parts need not line up."""
    parts: Spans = [((0,) * len(shape), shape)]
    for _ in range(draw(st.integers(0, 6))):
        low, size = parts.pop(draw(st.integers(0, len(parts) - 1)))
        dimension = draw(st.integers(0, len(shape) - 1))
        at = draw(st.integers(0, size[dimension]))
        for first, length in ((0, at), (at, size[dimension] - at)):
            parts.append(
                (
                    tuple(each + first * (d == dimension) for d, each in enumerate(low)),
                    tuple(length if d == dimension else each for d, each in enumerate(size)),
                )
            )
    return parts


shapes = st.lists(st.integers(0, 7), min_size=1, max_size=3).map(tuple)
tilings = shapes.flatmap(lambda shape: st.tuples(st.just(shape), *[grids(shape) | split_trees(shape)] * 2))


def as_boxes(spans: Spans) -> Boxes:
    return Boxes.of([low for low, _ in spans], [size for _, size in spans])


def meet(one: tuple[tuple[int, ...], tuple[int, ...]], other: tuple[tuple[int, ...], tuple[int, ...]]) -> bool:
    return all(
        max(low, their_low) < min(low + size, their_low + their_size)
        for low, size, their_low, their_size in zip(*one, *other, strict=True)
    )


@given(tilings)
def test_boxes_that_meet_are_those_that_brute_force_finds(drawn: tuple[tuple[int, ...], Spans, Spans]) -> None:
    _, stored, wanted = drawn
    found, asking = meetings(as_boxes(stored), as_boxes(wanted))
    pairs = sorted(zip(found.tolist(), asking.tolist(), strict=True))
    assert pairs == [(i, j) for i, one in enumerate(stored) for j, two in enumerate(wanted) if meet(one, two)]


@given(tilings)
def test_parts_that_make_up_a_tensor_have_no_gaps_and_one_less_or_one_twice_has(
    drawn: tuple[tuple[int, ...], Spans, Spans],
) -> None:
    shape, stored, _ = drawn
    full = [each for each in stored if math.prod(each[1])]
    assert gaps({"w": tensor_of(shape, full)}) == []
    if full:
        assert gaps({"w": tensor_of(shape, full[1:])})
        assert gaps({"w": tensor_of(shape, [*full, full[0]])})


def tensor_of(shape: tuple[int, ...], spans: Spans) -> StoredTensor:
    chunks = [Chunk(low, size, "f", 0, 0, 0, slab_rows(size, 4), ()) for low, size in spans]
    return StoredTensor(shape, "float32", chunks)


@given(tilings, st.integers(1, 5), st.data())
def test_every_element_wanted_comes_from_one_slab_once(
    drawn: tuple[tuple[int, ...], Spans, Spans], world: int, data: st.DataObject
) -> None:
    shape, stored, wanted = drawn
    tensor = tensor_of(shape, [each for each in stored if math.prod(each[1])])
    homes = [data.draw(st.integers(0, world - 1)) for _ in wanted]
    pieces: list[list[Piece]] = [[] for _ in range(world)]
    for home, (low, size) in zip(homes, wanted, strict=True):
        pieces[home].append(Piece("w", shape, low, size, torch.float32, torch.zeros(size)))
    made = make_plan({"w": tensor}, [Request.of(each) for each in pieces])
    for rank in range(world):
        for readings in made.readings(rank):
            for reading in readings:
                for part in reading.parts:
                    if part.rank == rank:
                        target = pieces[rank][part.piece]
                        within = tuple(
                            slice(low - o, high - o)
                            for low, high, o in zip(part.low, part.high, target.offsets, strict=True)
                        )
                        target.tensor[within] += 1
    assert all(bool((piece.tensor == 1).all()) for each in pieces for piece in each)
    assert made.bytes_read <= 4 * math.prod(shape)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_rank_makes_the_same_plan_and_each_slab_has_one_reader_who_wants_it(layout: str) -> None:
    whole = model(1)
    tensors = {
        name: StoredTensor(
            tuple(each.shape),
            str(each.dtype).removeprefix("torch."),
            [Chunk((0,) * each.dim(), tuple(each.shape), "f", 0, 0, 0, slab_rows(tuple(each.shape), 4), ())],
        )
        for name, each in whole.items()
    }
    requests = [Request.of(pieces_of(whole, layout, rank, 4)) for rank in range(4)]
    one, two = make_plan(tensors, requests), make_plan(tensors, requests)
    assert np.array_equal(one.reader, two.reader)
    for rank in range(4):
        for readings in one.readings(rank):
            for reading in readings:
                assert reading.reader in {part.rank for part in reading.parts}


def test_no_rank_reads_more_in_a_round_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "ROUND_BYTES", 64)
    monkeypatch.setattr(plan, "ROUND_BYTES_LEAST", 64)
    tensors = {f"w{number}": tensor_of((4,), [((0,), (4,))]) for number in range(20)}
    pieces = [Piece.whole(name, torch.zeros(4)) for name in tensors]
    made = make_plan(tensors, [Request.of(pieces)])
    assert made.rounds >= 5
    readings = list(made.readings(0))
    assert all(sum(each.bytes for each in these) <= 64 for these in readings)
    assert sum(map(len, readings)) == 20


def test_tensors_of_one_layout_share_the_work() -> None:
    boxes.PLANS.forget()
    tensors = {f"w{number}": tensor_of((40,), [((4 * i,), (4,)) for i in range(10)]) for number in range(30)}
    pieces = [Piece.whole(name, torch.zeros(40)) for name in tensors]
    for _ in range(2):
        make_plan(tensors, [Request.of(pieces)])
    assert boxes.PLANS.worked_out == 1


def test_the_work_grows_with_the_number_of_shards_not_with_its_square() -> None:
    """Counted in pairs looked at, for shards in rows, in a grid, and in no order at all."""
    for shards in (64, 256):
        rows = [((16 * i, 0), (16, 64)) for i in range(shards)]
        side = math.isqrt(shards)
        squares = [((16 * i, 8 * j), (16, 8)) for i in range(side) for j in range(side)]
        ragged = [((16 * i + i % 3, 0), (16 + (i + 1) % 3 - i % 3, 64)) for i in range(shards)]
        for spans in (rows, squares, ragged):
            looked_at, _ = boxes.candidates(as_boxes(spans), as_boxes(spans))
            assert len(looked_at) <= 4 * shards
