"""A small model and the ways to lay it out over ranks."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import torch

from phalanx.train.checkpoint.contents.piece import Piece
from phalanx.train.checkpoint.store import Step, commit, write_step

SHAPES: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
    "embed.weight": ((13, 8), torch.float32),
    "block.attention.weight": ((24, 10), torch.bfloat16),
    "block.norm.bias": ((7,), torch.float32),
    "block.experts": ((5, 6, 3), torch.float64),
    "optimizer.step": ((), torch.int64),
    "short": ((2, 9), torch.float16),
    "mask": ((17,), torch.bool),
    "nothing": ((0, 4), torch.float32),
}

Box = tuple[tuple[int, ...], tuple[int, ...], int, int]
Layout = Callable[[str, tuple[int, ...], int, int], Box | None]


def model(seed: int) -> dict[str, torch.Tensor]:
    """The whole tensors, all bits of them random."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, (shape, dtype) in SHAPES.items():
        size = math.prod(shape) * dtype.itemsize
        high = 2 if dtype is torch.bool else 256
        raw = torch.randint(0, high, (size,), generator=generator, dtype=torch.uint8)
        tensors[name] = raw.view(dtype).reshape(shape)
    return tensors


def along(dimension: int) -> Layout:
    """Cut along one dimension as DTensor does: parts of the rounded-up size, the last ones smaller or empty."""

    def layout(name: str, shape: tuple[int, ...], rank: int, world: int) -> Box | None:
        if len(shape) <= dimension:
            return (0,) * len(shape), shape, rank, world
        size = -(-shape[dimension] // world)
        low = min(rank * size, shape[dimension])
        return box(shape, {dimension: (low, min(low + size, shape[dimension]))})

    return layout


def uneven(name: str, shape: tuple[int, ...], rank: int, world: int) -> Box | None:
    """Cut along the first dimension at places drawn by chance, the same on every rank."""
    if not shape:
        return (), (), rank, world
    draw = random.Random(f"{name} {world}")
    cuts = [0, *sorted(draw.randint(0, shape[0]) for _ in range(world - 1)), shape[0]]
    return box(shape, {0: (cuts[rank], cuts[rank + 1])})


def pipeline(name: str, shape: tuple[int, ...], rank: int, world: int) -> Box | None:
    """Each tensor whole on one rank."""
    home = list(SHAPES).index(name) * world // len(SHAPES)
    return box(shape, {}) if rank == home else None


def replicated(name: str, shape: tuple[int, ...], rank: int, world: int) -> Box | None:
    return (0,) * len(shape), shape, rank, world


def grid(name: str, shape: tuple[int, ...], rank: int, world: int) -> Box | None:
    """Tensor parallel over the second dimension and sharded over the first, where the ranks make a grid of two rows."""
    if len(shape) < 2 or world % 2:
        return along(0)(name, shape, rank, world)
    row, column = divmod(rank, world // 2)
    cuts = {}
    for dimension, index, parts in ((0, row, 2), (1, column, world // 2)):
        low, high = (shape[dimension] * (index + more) // parts for more in (0, 1))
        cuts[dimension] = (low, high)
    return box(shape, cuts)


def box(shape: tuple[int, ...], cuts: dict[int, tuple[int, int]]) -> Box:
    spans = [cuts.get(dimension, (0, size)) for dimension, size in enumerate(shape)]
    return tuple(low for low, _ in spans), tuple(high - low for low, high in spans), 0, 1


LAYOUTS: dict[str, Layout] = {
    "fsdp": along(0),
    "tensor": along(1),
    "uneven": uneven,
    "pipeline": pipeline,
    "replicated": replicated,
    "grid": grid,
}


def pieces_of(whole: dict[str, torch.Tensor], layout: str, rank: int, world: int) -> list[Piece]:
    """What `rank` holds: views into the whole tensors."""
    pieces = []
    for name, tensor in whole.items():
        shape = tuple(tensor.shape)
        place = LAYOUTS[layout](name, shape, rank, world)
        if place is not None:
            offsets, sizes, replica, replicas = place
            part = tensor[tuple(slice(o, o + n) for o, n in zip(offsets, sizes, strict=True))]
            pieces.append(Piece(name, shape, offsets, sizes, tensor.dtype, part, replica, replicas))
    return pieces


def blank_pieces(layout: str, rank: int, world: int) -> list[Piece]:
    """The same places with nothing in them yet."""
    return pieces_of(blank(), layout, rank, world)


def blank() -> dict[str, torch.Tensor]:
    return {name: torch.zeros(shape, dtype=dtype) for name, (shape, dtype) in SHAPES.items()}


def save(root: str, step: int, whole: dict[str, torch.Tensor], layout: str = "fsdp", world: int = 2) -> Step:
    """All ranks' parts, one after another, and the commit."""
    for rank in range(world):
        objects = {"step": step, f"rng.rank{rank}": torch.arange(rank + 3)}
        write_step(root, step, rank, world, pieces_of(whole, layout, rank, world), objects)
    return commit(root, step, range(world), timeout_s=10, metrics={"loss": 1.0 / (1 + step)})


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Bitwise: a NaN equals itself, and zeros of two signs differ."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    flat = [each.contiguous().reshape(-1).view(torch.uint8) for each in (one, other)]
    return torch.equal(*flat)


def all_same_bits(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> bool:
    return found.keys() == expected.keys() and all(same_bits(found[name], expected[name]) for name in expected)
